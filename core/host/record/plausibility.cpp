#include "plausibility.hpp"

#include "registers.hpp"

namespace gpulift {
namespace {

/// None where a driver says 0, as some do for what they do not know.
std::optional<double> fact(const nlohmann::ordered_json& gpu, const char* key) {
  const double value = gpu.value(key, 0.0);
  return value > 0 ? std::optional(value) : std::nullopt;
}

/// Of one direction, after line coding.
std::optional<double> pcie_limit(const nlohmann::ordered_json& gpu) {
  const auto& generations = peaks().at("pcie").at("generations");
  const auto lane = generations.find(std::to_string(gpu.value("pcie_max_generation", 0)));
  const auto lanes = fact(gpu, "pcie_max_width");
  if (lane == generations.end() || !lanes) return std::nullopt;
  const double share = lane->at("payload").get<double>() / lane->at("of").get<double>();
  return lane->at("transfers_per_s").get<double>() * share / 8 * *lanes;
}

/// Of all NVLinks of the card in one direction.
std::optional<double> nvlink_limit(const nlohmann::ordered_json& gpu) {
  const auto links = fact(gpu, "nvlink_links");
  const auto link_bytes_per_s = fact(gpu, "nvlink_link_bytes_per_s");
  if (!links || !link_bytes_per_s) return std::nullopt;
  return *links * *link_bytes_per_s;
}

std::optional<double> memory_limit(const nlohmann::ordered_json& gpu) {
  const auto clock_hz = fact(gpu, "max_memory_clock_hz");
  const auto bus_bits = fact(gpu, "memory_bus_bits");
  if (!clock_hz || !bus_bits) return std::nullopt;
  return peaks().at("memory").at("transfers_per_clock").get<double>() * *clock_hz * *bus_bits / 8;
}

std::optional<double> operations_limit(const std::string& type, const nlohmann::ordered_json& gpu) {
  const auto per_clock = operations_per_clock(gpu.at("architecture"), type);
  const auto clock_hz = fact(gpu, "max_sm_clock_hz");
  const auto multiprocessors = fact(gpu, "multiprocessors");
  if (!per_clock || !clock_hz || !multiprocessors) return std::nullopt;
  return *per_clock * *multiprocessors * *clock_hz;
}

/// "memory", "pcie", "nvlink" or "operations"; empty where nothing limits it, and for what is no roof.
std::string limited_by(const std::string& roof) {
  if (!is_roof(roof)) return "";
  return roofs().at(roof).value("/limit/by"_json_pointer, "");
}

}  // namespace

bool is_roof(const std::string& name) { return roofs().contains(name); }

bool draws_power(const std::string& roof) { return limited_by(roof) == "operations"; }

double work_under_roof(const Cost& cost) {
  const bool operations = is_roof(cost.roof) && roofs().at(cost.roof).at("unit") == "FLOP/s";
  return operations ? cost.flops : cost.bytes;
}

bool exceeds_all_cores(double cpu_s, double window_s, int cores) {
  constexpr double kTick_s = 0.01;
  return cores > 0 && cpu_s > kImplausible * cores * window_s + kTick_s;
}

bool tells_other_time(const Window& window, std::int64_t steps, std::int64_t lead_in_steps) {
  constexpr double kMostOfDevice = 1.6;
  if (!window.device_s) return false;
  const double with_lead_in = static_cast<double>(steps + lead_in_steps) / static_cast<double>(steps);
  return window.host_s > kMostOfDevice * with_lead_in * *window.device_s ||
         *window.device_s > kImplausible * window.host_s;
}

std::optional<double> operations_per_clock(int architecture, const std::string& type) {
  const auto& table = peaks().at("operations");
  const auto found = table.find(std::to_string(architecture));
  if (found == table.end() || !found->at("per_clock").contains(type)) return std::nullopt;
  return found->at("per_clock").at(type).get<double>();
}

std::optional<double> physical_limit(const std::string& roof, const nlohmann::ordered_json& gpu) {
  const std::string by = limited_by(roof);
  if (by == "memory") return memory_limit(gpu);
  if (by == "nvlink") return nvlink_limit(gpu);
  if (by == "operations") return operations_limit(roofs().at(roof).at("limit").at("type"), gpu);
  if (by != "pcie") return std::nullopt;
  const auto one_way = pcie_limit(gpu);
  if (!one_way) return std::nullopt;
  return *one_way * roofs().at(roof).at("limit").at("directions").get<double>();
}

}  // namespace gpulift
