#pragma once
// Shared by the testing techniques on a device: kernels that count themselves, so that a step that did not run is
// found.

#include <cuda_runtime_api.h>

#include <cmath>
#include <memory>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/harness/technique.hpp"
#include "kernels/spin.hpp"

namespace gpulift::testing_techniques {

using Counter = std::shared_ptr<DeviceBuffer<std::uint64_t>>;

inline Counter make_counter(Device& device) { return std::make_shared<DeviceBuffer<std::uint64_t>>(device, 1); }

/// One step adds so many.
inline Check expect_kernels(const Counter& counter, int expected = 1) {
  return {
      .meaning = "kernels that ran",
      .poison =
          [counter](StreamHandle stream) { check(cudaMemsetAsync(counter->data(), 0, sizeof(std::uint64_t), stream)); },
      .error =
          [counter, expected](StreamHandle stream) {
            std::uint64_t ran = 0;
            check(cudaMemcpyAsync(&ran, counter->data(), sizeof(ran), cudaMemcpyDeviceToHost, stream));
            check(cudaStreamSynchronize(stream));
            return std::abs(static_cast<double>(ran) - expected);
          }};
}

inline Arm spinning_arm(const std::string& name, const Counter& counter, std::int64_t cycles) {
  return {.name = name, .make = [counter, cycles] {
            return [counter, cycles](StreamHandle stream) { spin(cycles, counter->data(), stream); };
          }};
}

}  // namespace gpulift::testing_techniques
