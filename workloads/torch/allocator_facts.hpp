#pragma once

#include <torch/types.h>

#include <cstddef>
#include <functional>
#include <string>

#include "core/harness/technique.hpp"

namespace gpulift {

/// How torch allocates device memory in this process, which its environment decided once: "uncached", "caching",
/// "expandable_segments", "malloc_async" or "roundup".
std::string allocator_in_use();

/// What the allocator counted while `steps` ran, which are `count` training steps: "device_allocations_per_step",
/// "device_frees_per_step" and "allocation_retries" (each emptied the cache). Empty where it counts nothing: without
/// caching, and for malloc_async.
Metrics count_allocations(torch::Device device, int count, const std::function<void()>& steps);

/// Free bytes of the device, other processes included; SIZE_MAX on the host.
std::size_t free_device_bytes(torch::Device device);
/// The lowest of free_device_bytes() while `work` ran, looked at again and again from another thread: peaks that are
/// shorter than some tens of microseconds may be missed.
std::size_t lowest_free_bytes_during(torch::Device device, const std::function<void()>& work);

}  // namespace gpulift
