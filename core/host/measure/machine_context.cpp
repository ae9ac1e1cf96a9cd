#include "machine_context.hpp"

#include "core/harness/environment.hpp"
#include "core/harness/machine.hpp"
#include "core/host/record/build_info.hpp"

namespace gpulift {
namespace {

using Json = nlohmann::ordered_json;

void add_no_device(Json& context, const NoDevice& no_device) {
  context["gpu_missing"] = no_device.reason;
  if (!no_device.remedy.empty()) context["gpu_remedy"] = no_device.remedy;
}

}  // namespace

void add_nvml_facts(Json& context, const GpuFacts& facts) {
  Json& gpu = context["gpu"];
  put(gpu, "power_limit_w", facts.power_limit_w);
  put(gpu, "default_power_limit_w", facts.default_power_limit_w);
  put(gpu, "max_sm_clock_hz", facts.max_sm_clock_hz);
  put(gpu, "max_memory_clock_hz", facts.max_memory_clock_hz);
  if (!facts.has_c2c) {  // else copies to the host take those links, and PCIe is no limit to them
    put(gpu, "pcie_max_generation", facts.pcie_max_generation);
    put(gpu, "pcie_max_width", facts.pcie_max_width);
  }
  put(gpu, "nvlink_links", facts.nvlink_links);
  put(gpu, "nvlink_link_bytes_per_s", facts.nvlink_link_bytes_per_s);
  put(gpu, "mig", facts.mig);
  if (!facts.vbios.empty()) gpu["vbios"] = facts.vbios;
  if (!facts.driver.empty()) context["driver"] = facts.driver;
}

Machine look_at_machine(int gpu_index) {
  Machine machine;
  Json& context = machine.context;
  context = Json::object();
  auto found = find_device(gpu_index);
  if (auto* facts = std::get_if<DeviceFacts>(&found)) {
    machine.device = *facts;
    context["gpu"] = facts->gpu;
    context.update(facts->software);
    auto opened = Nvml::open(facts->pci_bus_id);
    if (auto* nvml = std::get_if<Nvml>(&opened)) {
      add_nvml_facts(context, nvml->facts());
      machine.nvml = *nvml;
    } else {
      machine.nvml_missing = std::get<std::string>(opened);
    }
  } else {
    machine.no_device = std::get<NoDevice>(found);
    machine.nvml_missing = "no device";
    add_no_device(context, machine.no_device);
  }
  context["host"] = host_facts();
  context["build"] = build_facts();
  context["environment"] = environment_facts();
  return machine;
}

Json look_at_health(int gpu_index) {
  Json health = Json::object();
  const auto found = find_device(gpu_index);
  if (const auto* no_device = std::get_if<NoDevice>(&found)) {
    add_no_device(health, *no_device);
    return health;
  }
  const auto& facts = std::get<DeviceFacts>(found);
  health["card"] = facts.gpu.at("card");
  const auto opened = Nvml::open(facts.pci_bus_id);
  if (const auto* nvml = std::get_if<Nvml>(&opened)) {
    health.update(health_json(nvml->health()));
  } else {
    health["nvml_missing"] = std::get<std::string>(opened);
  }
  health.update(numa_facts(facts.pci_bus_id));
  health.update(facts.software);
  return health;
}

}  // namespace gpulift
