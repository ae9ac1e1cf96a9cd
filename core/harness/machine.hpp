#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "json.hpp"

namespace gpulift {

/// "host" of a record: cpu, cpu_id (family, model and stepping, which hypervisors leave as they are),
/// vector_instructions, cores (that this process may keep busy), memory_bytes (of the machine), llc_bytes (sum of all
/// last-level caches), os, kernel (numbers only), virtual, and id, eight hex digits as card_id() makes them: of the
/// machine id where systemd runs (in a container that of the image may lie there), else of the boot id; id_of says
/// which. Both are random numbers, so that nobody finds them by trying. No name, user or path of the machine. Unknown
/// facts are absent. `root` is where /proc, /etc, /run and /sys lie.
nlohmann::ordered_json host_facts(const std::filesystem::path& root = "/");

/// How near the GPU at this PCI bus id ("0000:1B:00.0") is to this process: numa_node (of the card), host_numa_nodes,
/// affinity_covers_node (whether this process may run on a core of that node). Unknown facts are absent.
nlohmann::ordered_json numa_facts(const std::string& pci_bus_id, const std::filesystem::path& root = "/");

/// Eight hex digits that tell cards of one model apart and cannot be traced back to one: the first 32 bits of the
/// name-based UUID (RFC 4122, version 5) of the GPU's UUID in lower case, without "GPU-", in the namespace
/// 5f0c1c4e-7a0b-4d0e-9a55-2f6d6a1c3b90.
std::string card_id(const std::string& gpu_uuid);

struct NoDevice {
  std::string reason;
  std::string remedy;
};

/// Why the CUDA runtime found no usable device. `cuda_error` is what cudaGetDeviceCount returned (0 with no device);
/// `visible_devices` is CUDA_VISIBLE_DEVICES; versions are those of cudaDriverGetVersion and cudaRuntimeGetVersion
/// (1000 * major + 10 * minor; 0 where unknown).
NoDevice why_no_device(int cuda_error, bool driver_library_present, const std::optional<std::string>& visible_devices,
                       int driver_version, int runtime_version);

/// Why a build for these architectures ("80-real;90a-real") cannot run on a card of this one (90 for 9.0).
NoDevice why_no_device_code(std::string built_for, int architecture);

}  // namespace gpulift
