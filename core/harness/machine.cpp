#include "machine.hpp"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <boost/uuid/name_generator_sha1.hpp>
#include <boost/uuid/string_generator.hpp>
#include <boost/uuid/uuid_io.hpp>
#include <cctype>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>

#include "host_cache.hpp"
#include "host_limits.hpp"

namespace gpulift {
namespace {

// Values of cudaError_t, part of the CUDA runtime's stable interface. Written out because this file is built without
// it.
constexpr int kInsufficientDriver = 35;
constexpr int kNoDevice = 100;
constexpr int kSystemNotReady = 802;
constexpr int kDriverMismatch = 803;

/// The value of "key : value" or "key=value" in a file of such lines; empty when it is not there.
std::string lookup(const std::filesystem::path& file, const std::string& key, char separator) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const auto at = line.find(separator);
    if (at == std::string::npos) continue;
    auto name = line.substr(0, at);
    name.erase(name.find_last_not_of(" \t") + 1);
    if (name != key) continue;
    const auto from = line.find_first_not_of(" \t\"", at + 1);
    if (from == std::string::npos) return {};
    return line.substr(from, line.find_last_not_of(" \t\"") + 1 - from);
  }
  return {};
}

/// Numbers of the cores that this process may run on; more than a fixed cpu_set_t holds are possible. Empty where the
/// system does not say.
std::set<int> usable_cores() {
  for (int possible = 1024; possible <= 1 << 20; possible *= 2) {
    const auto free_set = [](cpu_set_t* set) { CPU_FREE(set); };
    const std::unique_ptr<cpu_set_t, decltype(free_set)> set(CPU_ALLOC(possible), free_set);
    const auto size = CPU_ALLOC_SIZE(possible);
    if (!set || sched_getaffinity(0, size, set.get()) != 0) continue;
    std::set<int> cores;
    for (int core = 0; core < possible; ++core) {
      if (CPU_ISSET_S(core, size, set.get())) cores.insert(core);
    }
    return cores;
  }
  return {};
}

/// Whether one of the cores lies in a list as Linux writes it: "0-15,32-47".
bool is_any_listed(const std::set<int>& cores, const std::string& list) {
  std::istringstream ranges(list);
  for (std::string range; std::getline(ranges, range, ',');) {
    std::istringstream text(range);
    int first = 0;
    if (!(text >> first)) continue;
    char dash = 0;
    int last = first;
    if (!(text >> dash >> last)) last = first;
    const auto core = cores.lower_bound(first);
    if (core != cores.end() && *core <= last) return true;
  }
  return false;
}

/// The first word of a file; empty where there is none.
std::string first_word(const std::filesystem::path& file) {
  std::string word;
  std::ifstream(file) >> word;
  return word;
}

/// Folders named node0, node1 and so on.
int count_numa_nodes(const std::filesystem::path& nodes) {
  int count = 0;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(nodes, none)) {
    const std::string name = entry.path().filename();
    if (name.size() > 4 && name.starts_with("node") && name.find_first_not_of("0123456789", 4) == std::string::npos) {
      ++count;
    }
  }
  return count;
}

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return text;
}

/// "6.1.0" of "6.1.0-18-amd64": the rest may name who built it.
std::string kernel_version() {
  utsname system{};
  if (uname(&system) != 0) return {};
  const std::string release = system.release;
  return release.substr(0, release.find_first_not_of("0123456789."));
}

std::string cpu_model(const std::filesystem::path& cpuinfo) {
  if (auto model = lookup(cpuinfo, "model name", ':'); !model.empty()) return model;
  utsname system{};  // Arm's cpuinfo has no name
  return uname(&system) == 0 ? system.machine : std::string();
}

/// What tells generations of processors apart whose name a hypervisor shortens: "25-17-1", of x86 family, model and
/// stepping, of Arm implementer, variant, part and revision.
std::string cpu_id(const std::filesystem::path& cpuinfo) {
  std::string id;
  for (const char* key :
       {"cpu family", "model", "stepping", "CPU implementer", "CPU variant", "CPU part", "CPU revision"}) {
    if (const auto value = lookup(cpuinfo, key, ':'); !value.empty()) id += (id.empty() ? "" : "-") + value;
  }
  return id;
}

std::set<std::string> cpu_flags(const std::filesystem::path& cpuinfo) {
  std::istringstream flags(lookup(cpuinfo, "flags", ':') + " " + lookup(cpuinfo, "Features", ':'));
  return {std::istream_iterator<std::string>(flags), {}};
}

/// Of the instructions that set the pace of products, those that there are: "avx2 avx512f avx512_bf16".
std::string vector_instructions(const std::set<std::string>& flags) {
  std::string known;
  for (const char* name :
       {"avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "asimd", "sve", "bf16"}) {
    if (flags.contains(name)) known += (known.empty() ? "" : " ") + std::string(name);
  }
  return known;
}

/// The first 32 bits of the name-based UUID in this program's own namespace.
std::string short_hash(const std::string& name) {
  const auto space = boost::uuids::string_generator()("5f0c1c4e-7a0b-4d0e-9a55-2f6d6a1c3b90");
  return boost::uuids::to_string(boost::uuids::name_generator_sha1(space)(name)).substr(0, 8);
}

/// What systemd writes once per installation; other words stand there until then. Empty where none is known.
std::string machine_id(const std::filesystem::path& root) {
  std::error_code none;
  if (!std::filesystem::is_directory(root / "run/systemd/system", none)) return {};
  const std::string id = first_word(root / "etc/machine-id");
  const bool is_id = id.size() == 32 && id.find_first_not_of("0123456789abcdef") == std::string::npos;
  return is_id ? id : std::string();
}

std::string cuda_version(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// The runtime stops at the first entry that names no device.
bool hides_all(const std::string& visible_devices) {
  return visible_devices.empty() || visible_devices.starts_with("-1") || visible_devices == "NoDevFiles";
}

}  // namespace

nlohmann::ordered_json host_facts(const std::filesystem::path& root) {
  const auto cpuinfo = root / "proc/cpuinfo";
  nlohmann::ordered_json facts;
  const auto add_text = [&](const char* key, const std::string& value) {
    if (!value.empty()) facts[key] = value;
  };
  const auto flags = cpu_flags(cpuinfo);
  add_text("cpu", cpu_model(cpuinfo));
  add_text("cpu_id", cpu_id(cpuinfo));
  add_text("vector_instructions", vector_instructions(flags));
  if (const auto cores = usable_cores(); !cores.empty()) {
    facts["cores"] = allowed_cores(static_cast<int>(cores.size()), root);
  }
  const long pages = sysconf(_SC_PHYS_PAGES);
  if (pages > 0) facts["memory_bytes"] = static_cast<std::int64_t>(pages) * sysconf(_SC_PAGESIZE);
  if (const auto bytes = last_level_cache_bytes(root / "sys/devices/system/cpu")) facts["llc_bytes"] = *bytes;
  add_text("os", lookup(root / "etc/os-release", "PRETTY_NAME", '='));
  add_text("kernel", kernel_version());
  const bool is_x86 = !lookup(cpuinfo, "flags", ':').empty();  // others have no flag for it
  if (is_x86) facts["virtual"] = flags.contains("hypervisor");
  const std::string machine = machine_id(root);
  const std::string told = machine.empty() ? first_word(root / "proc/sys/kernel/random/boot_id") : machine;
  if (!told.empty()) {
    facts["id"] = short_hash(told);
    facts["id_of"] = machine.empty() ? "boot_id" : "machine_id";
  }
  return facts;
}

nlohmann::ordered_json numa_facts(const std::string& pci_bus_id, const std::filesystem::path& root) {
  const auto nodes = root / "sys/devices/system/node";
  nlohmann::ordered_json facts;
  int node = -1;
  std::ifstream(root / "sys/bus/pci/devices" / lower_case(pci_bus_id) / "numa_node") >> node;
  if (node >= 0) facts["numa_node"] = node;
  if (const int count = count_numa_nodes(nodes); count > 0) facts["host_numa_nodes"] = count;
  const std::string list = node < 0 ? "" : first_word(nodes / ("node" + std::to_string(node)) / "cpulist");
  if (!list.empty()) facts["affinity_covers_node"] = is_any_listed(usable_cores(), list);
  return facts;
}

std::string card_id(const std::string& gpu_uuid) {
  return short_hash(lower_case(gpu_uuid.substr(gpu_uuid.starts_with("GPU-") ? 4 : 0)));
}

NoDevice why_no_device(int cuda_error, bool driver_library_present, const std::optional<std::string>& visible_devices,
                       int driver_version, int runtime_version) {
  if (!driver_library_present) {
    return {"no NVIDIA driver on this machine (libcuda.so.1 cannot be opened)",
            "install the NVIDIA driver, or use a machine or container with a GPU"};
  }
  if (cuda_error == kInsufficientDriver && driver_version > 0) {
    return {"the NVIDIA driver is too old: it supports CUDA " + cuda_version(driver_version) +
                ", this build needs CUDA " + cuda_version(runtime_version),
            "install a driver that supports CUDA " + cuda_version(runtime_version) + " or later"};
  }
  if (visible_devices && hides_all(*visible_devices)) {
    return {visible_devices->empty() ? "CUDA_VISIBLE_DEVICES is empty, which hides every GPU"
                                     : "CUDA_VISIBLE_DEVICES hides every GPU",
            "unset CUDA_VISIBLE_DEVICES or name a GPU in it, e.g. CUDA_VISIBLE_DEVICES=0"};
  }
  if (cuda_error == kNoDevice && visible_devices) {
    // Its value may be the UUID of a card, which no record may carry.
    return {"CUDA_VISIBLE_DEVICES names no GPU of this machine",
            "nvidia-smi -L lists the GPUs; unset CUDA_VISIBLE_DEVICES to see them all"};
  }
  if (cuda_error == 0 || cuda_error == kNoDevice || cuda_error == kInsufficientDriver) {
    return {"the NVIDIA driver's library is here, but no GPU", "see whether nvidia-smi -L lists one"};
  }
  if (cuda_error == kSystemNotReady) {
    return {"the GPUs are not ready (CUDA error 802)", "start the NVIDIA fabric manager of the driver's version"};
  }
  if (cuda_error == kDriverMismatch) {
    return {"driver library and kernel module differ in version (CUDA error 803)", "reboot after the driver update"};
  }
  return {"the CUDA runtime cannot start (CUDA error " + std::to_string(cuda_error) + ")",
          "see whether nvidia-smi works, and what it says"};
}

NoDevice why_no_device_code(std::string built_for, int architecture) {
  std::replace(built_for.begin(), built_for.end(), ';', ' ');
  return {"this build cannot run on the GPU: it is for the architectures " + built_for + ", the GPU is " +
              std::to_string(architecture / 10) + "." + std::to_string(architecture % 10),
          "run ./gpulift setup, which configures the build for the GPUs that are there"};
}

}  // namespace gpulift
