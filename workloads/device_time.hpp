#pragma once
// What a workload needs to know of device time to give itself a length. Never a result: the engine alone measures.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>

#include "core/cuda/device.hpp"

namespace gpulift {

/// Cycles that pass in `time_s` at the highest clock of the device's multiprocessors, which short work runs at.
std::int64_t cycles_in(const Device& device, double time_s);

/// Device time in seconds of what `enqueue` puts on the stream: the median of five, after at least 20 ms of the same
/// work that let the clocks rise. Waits for the stream.
double calibrate_s(const std::function<void(cudaStream_t)>& enqueue, cudaStream_t stream);

}  // namespace gpulift
