#include "workloads/host/allocator_in_use.hpp"

#include <dlfcn.h>

#include <array>
#include <utility>

namespace gpulift {

std::string allocator_in_use() {
  constexpr std::array<std::pair<const char*, const char*>, 5> kOwnFunctions{{
      {"mallctl", "jemalloc"},
      {"tc_version", "tcmalloc"},
      {"mi_version", "mimalloc"},
      {"__asan_init", "AddressSanitizer"},
      {"__tsan_init", "ThreadSanitizer"},
  }};
  for (const auto& [function, allocator] : kOwnFunctions) {
    if (dlsym(RTLD_DEFAULT, function) != nullptr) return allocator;
  }
  return "libc";
}

}  // namespace gpulift
