#pragma once
// Shared by the testing techniques on a device: kernels that count themselves, so that a step that did not run is
// found.

#include <cuda_runtime_api.h>

#include <memory>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/harness/technique.hpp"
#include "kernels/spin.hpp"

namespace gpulift::testing_techniques {

using Counter = std::shared_ptr<DeviceBuffer<std::uint64_t>>;

inline Counter make_counter(Device& device) { return std::make_shared<DeviceBuffer<std::uint64_t>>(device, 1); }

/// One step adds one.
inline Check expect_one(const Counter& counter) {
  return {
      .meaning = "kernels that ran",
      .poison =
          [counter](StreamHandle stream) { check(cudaMemsetAsync(counter->data(), 0, sizeof(std::uint64_t), stream)); },
      .error =
          [counter](StreamHandle) {
            std::uint64_t ran = 0;
            check(cudaMemcpy(&ran, counter->data(), sizeof(ran), cudaMemcpyDeviceToHost));
            return ran == 1 ? 0.0 : 1.0;
          }};
}

inline Arm spinning_arm(const std::string& name, const Counter& counter, std::int64_t cycles) {
  return {.name = name, .make = [counter, cycles] {
            return [counter, cycles](StreamHandle stream) { spin(cycles, counter->data(), stream); };
          }};
}

}  // namespace gpulift::testing_techniques
