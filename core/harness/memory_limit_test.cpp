#include "memory_limit.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace gpulift {
namespace {

constexpr std::size_t kLimit = std::size_t{64} << 20;

/// Whether the kernel promises so many bytes, which nobody touches.
bool can_have(std::size_t bytes) {
  void* const found = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (found == MAP_FAILED) return false;
  munmap(found, bytes);
  return true;
}

bool child_can_have(std::size_t bytes) {
  const pid_t child = fork();
  if (child == 0) _exit(can_have(bytes) ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0;
}

TEST(MemoryLimit, HoldsForTheProcessAndItsChildrenWhileItLives) {
  {
    const MemoryLimit limit(kLimit);
    EXPECT_TRUE(can_have(kLimit / 2));
    EXPECT_FALSE(can_have(2 * kLimit));
    EXPECT_FALSE(child_can_have(2 * kLimit));
  }
  EXPECT_TRUE(can_have(2 * kLimit));
}

TEST(MemoryLimit, ALowerOneStays) {
  const MemoryLimit lower(kLimit);
  const MemoryLimit higher(8 * kLimit);
  EXPECT_FALSE(can_have(2 * kLimit));
}

}  // namespace
}  // namespace gpulift
