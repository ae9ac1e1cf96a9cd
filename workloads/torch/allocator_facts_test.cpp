#include "allocator_facts.hpp"

#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

namespace gpulift {
namespace {

constexpr const char* kExpected = "GPULIFT_TESTING_ALLOCATOR";

// Run again in processes of other environments, see below.
TEST(AllocatorInUse, IsTheExpectedOne) {
  const char* expected = std::getenv(kExpected);
  EXPECT_EQ(allocator_in_use(), expected == nullptr ? "caching" : expected);
}

TEST(AllocatorInUse, IsWhatTheEnvironmentAskedFor) {
  const std::map<std::string, std::string> environments{
      {"uncached", "PYTORCH_NO_CUDA_MEMORY_CACHING=1"},
      {"caching", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False"},
      {"expandable_segments", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"},
      {"malloc_async", "PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync"},
      {"roundup", "PYTORCH_CUDA_ALLOC_CONF=roundup_power2_divisions:4"}};
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  for (const auto& [name, environment] : environments) {
    const std::string command = "env " + environment + " " + kExpected + "=" + name + " '" + program +
                                "' --gtest_filter=AllocatorInUse.IsTheExpectedOne > /dev/null";
    EXPECT_EQ(std::system(command.c_str()), 0) << name;
  }
}

TEST(CountAllocations, RunsTheStepsOnAHostToo) {
  int steps = 0;
  EXPECT_TRUE(count_allocations(torch::kCPU, 1, [&] { ++steps; }).empty());
  EXPECT_EQ(steps, 1);
}

TEST(CountAllocations, SeesBlocksThatAreNotCached) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const torch::Device device(torch::kCUDA, 0);
  const auto allocate = [&] { torch::empty({64 << 20}, torch::TensorOptions(device)); };
  allocate();
  EXPECT_EQ(count_allocations(device, 2, [&] { allocate(); }).at("device_allocations_per_step"), 0);
  const auto metrics = count_allocations(device, 2, [&] {
    const torch::Tensor first = torch::empty({128 << 20}, torch::TensorOptions(device));
    const torch::Tensor second = torch::empty({128 << 20}, torch::TensorOptions(device));
  });
  EXPECT_EQ(metrics.at("device_allocations_per_step"), 1);
  EXPECT_EQ(metrics.at("allocation_retries"), 0);
}

TEST(LowestFreeBytes, SeeWhatWorkHolds) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const torch::Device device(torch::kCUDA, 0);
  torch::empty({1}, torch::TensorOptions(device));  // makes the context
  const std::size_t before = free_device_bytes(device);
  const std::size_t lowest = lowest_free_bytes_during(device, [&] {
    const torch::Tensor gibibyte = torch::zeros({1 << 30}, torch::TensorOptions(device).dtype(torch::kInt8));
    torch::cuda::synchronize();
  });
  EXPECT_GE(before - lowest, std::size_t{1} << 30);
}

}  // namespace
}  // namespace gpulift
