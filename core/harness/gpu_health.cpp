#include "gpu_health.hpp"

#include <utility>

namespace gpulift {
namespace {

using Json = nlohmann::ordered_json;

void put_group(Json& json, const char* key, Json group) {
  if (!group.empty()) json[key] = std::move(group);
}

Json ecc_json(const GpuHealth::Ecc& ecc) {
  Json json;
  put(json, "enabled", ecc.enabled);
  put(json, "pending", ecc.pending);
  put(json, "corrected_volatile", ecc.corrected_volatile);
  put(json, "uncorrected_volatile", ecc.uncorrected_volatile);
  put(json, "corrected_aggregate", ecc.corrected_aggregate);
  put(json, "uncorrected_aggregate", ecc.uncorrected_aggregate);
  return json;
}

Json rows_json(const std::optional<GpuHealth::RowRemapping>& rows) {
  if (!rows) return {};
  return {{"correctable", rows->correctable},
          {"uncorrectable", rows->uncorrectable},
          {"pending", rows->pending},
          {"failure", rows->failure}};
}

Json pcie_json(const GpuHealth& health) {
  Json json;
  put(json, "generation", health.now.pcie_generation);
  put(json, "width", health.now.pcie_width);
  put(json, "max_generation", health.facts.pcie_max_generation);
  put(json, "max_width", health.facts.pcie_max_width);
  put(json, "replays", health.pcie_replays);
  return json;
}

Json nvlinks_json(const std::vector<GpuHealth::NvLink>& links) {
  Json json;
  for (const auto& link : links) {
    Json one{{"link", link.link}, {"active", link.active}};
    put(one, "version", link.version);
    put(one, "errors", link.errors);
    put(one, "crc_errors", link.crc_errors);
    put(one, "replays", link.replays);
    put(one, "ecc_errors", link.ecc_errors);
    json.push_back(std::move(one));
  }
  return json;
}

Json power_json(const GpuHealth& health) {
  Json json;
  put(json, "limit_w", health.facts.power_limit_w);
  put(json, "default_limit_w", health.facts.default_power_limit_w);
  put(json, "min_limit_w", health.min_power_limit_w);
  put(json, "max_limit_w", health.max_power_limit_w);
  return json;
}

Json clocks_json(const GpuHealth& health) {
  Json json;
  put(json, "sm_hz", health.now.sm_clock_hz);
  put(json, "max_sm_hz", health.facts.max_sm_clock_hz);
  put(json, "application_sm_hz", health.application_sm_clock_hz);
  return json;
}

Json temperature_json(const GpuHealth& health) {
  Json json;
  put(json, "now_c", health.now.temperature_c);
  put(json, "slowdown_c", health.slowdown_temperature_c);
  put(json, "shutdown_c", health.shutdown_temperature_c);
  put(json, "margin_c", health.temperature_margin_c);
  return json;
}

Json memory_json(const std::optional<GpuHealth::Memory>& memory) {
  if (!memory) return {};
  return {{"total_bytes", memory->total_bytes},
          {"free_bytes", memory->free_bytes},
          {"used_bytes", memory->used_bytes},
          {"reserved_bytes", memory->reserved_bytes}};
}

Json processes_json(const std::vector<GpuHealth::Process>& processes) {
  Json json = Json::array();
  for (const auto& process : processes) {
    Json one{{"pid", process.pid}};
    put(one, "used_bytes", process.used_bytes);
    json.push_back(std::move(one));
  }
  return json;
}

}  // namespace

Json health_json(const GpuHealth& health) {
  Json json = Json::object();
  if (health.now.time_s > 0) json["time_s"] = health.now.time_s;
  put_group(json, "ecc", ecc_json(health.ecc));
  put_group(json, "row_remapping", rows_json(health.row_remapping));
  put(json, "retired_pages_pending", health.retired_pages_pending);
  put_group(json, "pcie", pcie_json(health));
  put_group(json, "nvlinks", nvlinks_json(health.nvlinks));
  put_group(json, "power", power_json(health));
  put_group(json, "clocks", clocks_json(health));
  // An empty list of these two is an answer: nothing throttles, nobody else computes.
  if (health.throttle_reasons) json["throttle"] = throttle_names(*health.throttle_reasons);
  put_group(json, "temperature", temperature_json(health));
  put_group(json, "memory", memory_json(health.memory));
  if (health.other_processes) json["processes"] = processes_json(*health.other_processes);
  put(json, "persistence_mode", health.persistence_mode);
  if (!health.compute_mode.empty()) json["compute_mode"] = health.compute_mode;
  put(json, "mig", health.facts.mig);
  if (!health.facts.driver.empty()) json["driver"] = health.facts.driver;
  return json;
}

}  // namespace gpulift
