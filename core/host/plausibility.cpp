#include "plausibility.hpp"

#include <map>
#include <utility>

namespace gpulift {
namespace {

// Bytes/s of one lane and direction after line coding, from the PCI Express base specifications: 2.5 and 5 GT/s with
// 8b/10b, 8 to 32 GT/s with 128b/130b, 64 GT/s in FLIT mode (242 of 256 bytes).
std::optional<double> pcie_lane_bytes_per_s(int generation) {
  switch (generation) {
    case 1:
      return 2.5e9 * 8 / 10 / 8;
    case 2:
      return 5e9 * 8 / 10 / 8;
    case 3:
      return 8e9 * 128 / 130 / 8;
    case 4:
      return 16e9 * 128 / 130 / 8;
    case 5:
      return 32e9 * 128 / 130 / 8;
    case 6:
      return 64e9 * 242 / 256 / 8;
    default:
      return std::nullopt;
  }
}

/// None where a driver says 0, as some do for what they do not know.
std::optional<double> fact(const nlohmann::ordered_json& gpu, const char* key) {
  const double value = gpu.value(key, 0.0);
  return value > 0 ? std::optional(value) : std::nullopt;
}

std::optional<double> link_limit(const std::string& direction, const nlohmann::ordered_json& gpu) {
  const auto lane = pcie_lane_bytes_per_s(gpu.value("pcie_max_generation", 0));
  const auto lanes = fact(gpu, "pcie_max_width");
  if (!lane || !lanes) return std::nullopt;
  return *lane * *lanes * (direction == "both" ? 2 : 1);
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
  // Two transfers per clock, as the driver reports clocks of GDDR and HBM memory.
  return 2 * *clock_hz * *bus_bits / 8;
}

std::optional<double> gemm_limit(const std::string& type, const nlohmann::ordered_json& gpu) {
  const auto per_clock = operations_per_clock(gpu.at("architecture"), type);
  const auto clock_hz = fact(gpu, "max_sm_clock_hz");
  const auto multiprocessors = fact(gpu, "multiprocessors");
  if (!per_clock || !clock_hz || !multiprocessors) return std::nullopt;
  return *per_clock * *multiprocessors * *clock_hz;
}

}  // namespace

std::optional<double> operations_per_clock(int architecture, const std::string& type) {
  // Datasheet dense peak / (multiprocessors x boost clock), with FP32 accumulation as the data-centre parts have it:
  // A100 312 TFLOP/s fp16 at 108 x 1.41 GHz; H100/H200 989.5 at 132 x 1.83; the whitepapers of Turing (T4, RTX 20),
  // Ampere GA100 and GA102, Ada AD102 and Hopper give the same numbers per multiprocessor.
  static const std::map<std::pair<int, std::string>, double> table = {
      {{75, "fp32"}, 128},  {{75, "fp16"}, 1024}, {{75, "int8"}, 2048},  {{80, "fp32"}, 128},   {{80, "tf32"}, 1024},
      {{80, "fp16"}, 2048}, {{80, "bf16"}, 2048}, {{80, "int8"}, 4096},  {{86, "fp32"}, 256},   {{86, "tf32"}, 512},
      {{86, "fp16"}, 1024}, {{86, "bf16"}, 1024}, {{86, "int8"}, 2048},  {{89, "fp32"}, 256},   {{89, "tf32"}, 512},
      {{89, "fp16"}, 1024}, {{89, "bf16"}, 1024}, {{89, "fp8"}, 2048},   {{89, "int8"}, 2048},  {{90, "fp32"}, 256},
      {{90, "tf32"}, 2048}, {{90, "fp16"}, 4096}, {{90, "bf16"}, 4096},  {{90, "fp8"}, 8192},   {{90, "int8"}, 8192},
      {{120, "fp32"}, 256}, {{120, "tf32"}, 512}, {{120, "fp16"}, 1024}, {{120, "bf16"}, 1024}, {{120, "fp8"}, 2048},
      {{120, "int8"}, 2048}};
  const auto found = table.find({architecture, type});
  return found == table.end() ? std::nullopt : std::optional(found->second);
}

std::optional<double> physical_limit(const std::string& roof, const nlohmann::ordered_json& gpu) {
  if (roof == "device_memory") return memory_limit(gpu);
  if (roof.starts_with("host_link/")) return link_limit(roof.substr(roof.find('/') + 1), gpu);
  if (roof == "gpu_link") return nvlink_limit(gpu);
  if (roof == "gpu_link/host") return link_limit("h2d", gpu);  // up from one GPU, down to the other
  if (roof.starts_with("gemm/")) return gemm_limit(roof.substr(roof.find('/') + 1), gpu);
  return std::nullopt;
}

}  // namespace gpulift
