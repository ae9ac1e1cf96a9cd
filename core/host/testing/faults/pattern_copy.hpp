#pragma once
// Shared by the faults of a copy within device memory: a known pattern, and how it is found to have arrived.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/harness/technique.hpp"
#include "kernels/fill.hpp"
#include "kernels/verify.hpp"

namespace gpulift::testing_faults {

/// 512 MiB to read and as much to write: far more than any L2 cache holds.
class PatternCopy {
 public:
  static constexpr std::size_t kBytes = std::size_t{512} << 20;

  PatternCopy(Device& device, std::uint64_t seed)
      : seed_(seed), verifier_(device), input_(device, kBytes), output_(device, kBytes) {
    fill_pattern(input_.data(), kBytes, seed, nullptr);
    gpulift::check(cudaDeviceSynchronize());
  }

  const std::byte* input() const { return input_.data(); }
  std::byte* output() const { return output_.data(); }

  Cost cost() const { return {.bytes = 2.0 * static_cast<double>(kBytes), .roof = "device_memory"}; }
  Check check() const {
    return {.meaning = "exact bytes",
            .poison = [this](StreamHandle stream) { gpulift::check(cudaMemsetAsync(output(), 0xFF, kBytes, stream)); },
            .error = [this](StreamHandle stream) { return verifier_.wrong_bytes(output(), kBytes, seed_, stream); }};
  }

 private:
  std::uint64_t seed_;
  Verifier verifier_;
  DeviceBuffer<std::byte> input_;
  DeviceBuffer<std::byte> output_;
};

}  // namespace gpulift::testing_faults
