#include "allocator_facts.hpp"

#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <stop_token>
#include <thread>

#include "core/cuda/check.hpp"
#include "core/cuda/error.hpp"

namespace gpulift {
namespace {

constexpr std::size_t kAnySize = std::size_t{3} << 20;  // not a power of two, so that rounding would show

c10::CachingDeviceAllocator::DeviceStats stats_of(torch::Device device) {
  return c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
}

}  // namespace

std::string allocator_in_use() {
  using Config = c10::CachingAllocator::AcceleratorAllocatorConfig;
  if (std::getenv("PYTORCH_NO_CUDA_MEMORY_CACHING") != nullptr) return "uncached";
  if (c10::cuda::CUDACachingAllocator::name() == "cudaMallocAsync") return "malloc_async";
  if (Config::use_expandable_segments()) return "expandable_segments";
  if (Config::roundup_power2_divisions(kAnySize) > 0) return "roundup";
  return "caching";
}

Metrics count_allocations(torch::Device device, int count, const std::function<void()>& steps) {
  if (!device.is_cuda()) {
    steps();
    return {};
  }
  const auto before = stats_of(device);
  steps();
  const auto after = stats_of(device);
  const auto all = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  if (after.allocation[all].allocated == 0) return {};
  const auto per_step = [count](std::int64_t calls) { return static_cast<double>(calls) / count; };
  return {{"device_allocations_per_step", per_step(after.num_device_alloc - before.num_device_alloc)},
          {"device_frees_per_step", per_step(after.num_device_free - before.num_device_free)},
          {"allocation_retries", static_cast<double>(after.num_alloc_retries - before.num_alloc_retries)}};
}

std::size_t free_device_bytes(torch::Device device) {
  if (!device.is_cuda()) return std::numeric_limits<std::size_t>::max();
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaSetDevice(device.index()));
  check(cudaMemGetInfo(&free, &total));
  return free;
}

std::size_t lowest_free_bytes_during(torch::Device device, const std::function<void()>& work) {
  std::size_t lowest = free_device_bytes(device);
  {
    const std::jthread watch([&lowest, device](const std::stop_token& stop) {
      try {
        while (!stop.stop_requested()) lowest = std::min(lowest, free_device_bytes(device));
      } catch (const Error&) {
        return;  // of a broken device the work itself hears too
      }
    });
    work();
  }
  return std::min(lowest, free_device_bytes(device));
}

}  // namespace gpulift
