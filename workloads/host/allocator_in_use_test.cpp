#include "workloads/host/allocator_in_use.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace gpulift {
namespace {

/// Runs this program again with the library in front of the C library; true when it then sees `allocator`.
bool sees_with_preload(const std::string& library, const std::string& allocator) {
  const auto self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command = "GPULIFT_EXPECTED_ALLOCATOR=" + allocator + " LD_PRELOAD=" + library + " '" + self +
                              "' --gtest_also_run_disabled_tests --gtest_filter='*DISABLED_IsTheOneThatWasPreloaded' "
                              ">/dev/null";
  return std::system(command.c_str()) == 0;
}

/// Asks the loader, which warns when it has to ignore a preload. (dlopen() is no test: jemalloc can only be loaded at
/// the start of a process.)
bool is_installed(const std::string& library) {
  FILE* warnings = popen(("LD_PRELOAD=" + library + " /bin/true 2>&1").c_str(), "r");
  const bool none = std::fgetc(warnings) == EOF;
  pclose(warnings);
  return none;
}

bool has_sanitizer() { return allocator_in_use().ends_with("Sanitizer"); }

TEST(AllocatorInUse, IsTheCLibrarysWithoutAPreload) {
  if (has_sanitizer()) GTEST_SKIP() << "a sanitizer brings its own allocator";
  EXPECT_EQ(allocator_in_use(), "libc");
}

/// The other half of the tests below, run by them.
TEST(AllocatorInUse, DISABLED_IsTheOneThatWasPreloaded) {
  const char* expected = std::getenv("GPULIFT_EXPECTED_ALLOCATOR");
  ASSERT_NE(expected, nullptr);
  EXPECT_EQ(allocator_in_use(), expected);
}

struct Preload {
  std::string library;
  std::string allocator;
};

class PreloadedAllocator : public testing::TestWithParam<Preload> {};

TEST_P(PreloadedAllocator, IsRecognised) {
  if (has_sanitizer()) GTEST_SKIP() << "a sanitizer must come first in the process";
  if (!is_installed(GetParam().library)) GTEST_SKIP() << GetParam().library << " is not installed";
  EXPECT_TRUE(sees_with_preload(GetParam().library, GetParam().allocator));
  EXPECT_FALSE(sees_with_preload(GetParam().library, "libc"));
}

INSTANTIATE_TEST_SUITE_P(All, PreloadedAllocator,
                         testing::Values(Preload{"libjemalloc.so.2", "jemalloc"},
                                         Preload{"libtcmalloc_minimal.so.4", "tcmalloc"},
                                         Preload{"libmimalloc.so.2", "mimalloc"}),
                         [](const auto& tested) { return tested.param.allocator; });

}  // namespace
}  // namespace gpulift
