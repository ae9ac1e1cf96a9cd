#pragma once

#include <sys/resource.h>

#include <cstddef>

namespace gpulift {

/// While it lives, this process and each that it starts get at most so many bytes more than it has: who asks for more
/// is told so (std::bad_alloc, MemoryError), where the kernel would promise them and end some process later. Address
/// space counts, as far as it is private and can be written to. Limits that are lower stay.
class MemoryLimit {
 public:
  explicit MemoryLimit(std::size_t more_bytes);
  ~MemoryLimit();
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  rlimit before_{};
};

}  // namespace gpulift
