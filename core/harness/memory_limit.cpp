#include "memory_limit.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <system_error>

namespace gpulift {
namespace {

/// Of data and stacks: the sixth of proc_pid_statm(5).
rlim_t own_bytes() {
  std::ifstream pages("/proc/self/statm");
  rlim_t count = 0;
  for (int field = 0; field < 6; ++field) pages >> count;
  return count * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
}

void set(const rlimit& limit) {
  if (setrlimit(RLIMIT_DATA, &limit) != 0) throw std::system_error(errno, std::generic_category(), "RLIMIT_DATA");
}

}  // namespace

MemoryLimit::MemoryLimit(std::size_t more_bytes) {
  getrlimit(RLIMIT_DATA, &before_);
  set({.rlim_cur = std::min(before_.rlim_cur, own_bytes() + more_bytes), .rlim_max = before_.rlim_max});
}

MemoryLimit::~MemoryLimit() { setrlimit(RLIMIT_DATA, &before_); }

}  // namespace gpulift
