#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string>

namespace gpulift {

/// Sum of all last-level caches of the machine (each counted once, however many cores share it), in bytes. Absent where
/// the system does not say. In a header of its own because the engine records it and workloads size their buffers by
/// it. `cpus` is Linux's folder of processors.
inline std::optional<std::size_t> last_level_cache_bytes(
    const std::filesystem::path& cpus = "/sys/devices/system/cpu") {
  int last_level = 0;
  std::size_t total_bytes = 0;
  std::set<std::string> counted;
  std::error_code none;
  for (const auto& cpu : std::filesystem::directory_iterator(cpus, none)) {
    for (const auto& cache : std::filesystem::directory_iterator(cpu.path() / "cache", none)) {
      int level = 0;
      std::size_t size_kib = 0;
      std::string shared_by;
      std::ifstream(cache.path() / "level") >> level;
      std::ifstream(cache.path() / "size") >> size_kib;  // "32768K"
      std::ifstream(cache.path() / "shared_cpu_list") >> shared_by;
      if (level < last_level || size_kib == 0) continue;
      if (level > last_level) {
        last_level = level;
        total_bytes = 0;
        counted.clear();
      }
      if (counted.insert(shared_by).second) total_bytes += size_kib * 1024;
    }
  }
  if (total_bytes > 0) return total_bytes;
  const long fallback_bytes = std::max(sysconf(_SC_LEVEL3_CACHE_SIZE), sysconf(_SC_LEVEL2_CACHE_SIZE));
  if (fallback_bytes > 0) return static_cast<std::size_t>(fallback_bytes);
  return {};
}

}  // namespace gpulift
