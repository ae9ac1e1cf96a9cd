#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "core/cuda/buffer.hpp"

namespace gpulift {

/// Compares results on the device and reads one number back. Every call waits for the stream. Owns 8 bytes of device
/// memory; make it where the inputs are made, so that no arm's peak memory includes it.
class Verifier {
 public:
  explicit Verifier(Device& device) : result_(device, 1) {}

  /// How many of the bytes differ from what fill_pattern() writes. Aligned to 8 bytes, or std::invalid_argument.
  double wrong_bytes(const void* data, std::size_t bytes, std::uint64_t seed, cudaStream_t stream,
                     std::uint64_t first_word = 0) const;

  /// How many bytes differ between two buffers. Both aligned to 8 bytes, or std::invalid_argument.
  double different_bytes(const void* left, const void* right, std::size_t bytes, cudaStream_t stream) const;

  /// How many 32-bit words differ from `word`.
  double different_words(const void* data, std::size_t words, std::uint32_t word, cudaStream_t stream) const;

  /// The largest |actual - expected| / max(|expected|, floor) over all elements; NaN when any element is NaN. `floor`
  /// is the magnitude below which an expected value counts as cancelled: give the typical magnitude of the result.
  /// Actual: float, __half, __nv_bfloat16. Expected: float, double.
  template <typename Actual, typename Expected>
  double max_relative_error(const Actual* actual, const Expected* expected, std::size_t count, double floor,
                            cudaStream_t stream) const;

  /// Sum in FP64; NaN when any element is NaN. The order of additions is not fixed.
  double sum(const float* data, std::size_t count, cudaStream_t stream) const;

  /// Sum of the 32-bit words modulo 2^32: the same in any order.
  std::uint32_t sum_of_words(const void* data, std::size_t words, cudaStream_t stream) const;

 private:
  template <typename T>
  void clear(cudaStream_t stream) const;
  template <typename T>
  T read(cudaStream_t stream) const;

  DeviceBuffer<double> result_;
};

}  // namespace gpulift
