#pragma once
// Matrices in device memory that products take in turn, so that none finds its own in the cache.

#include <cstddef>
#include <cstdint>

#include "core/cuda/buffer.hpp"
#include "kernels/matmul_data.hpp"

namespace gpulift {

/// One of `sets` matrices that lie behind each other, each on a boundary that suits every algorithm.
class MatrixSet {
 public:
  MatrixSet(Device& device, ElementType type, std::int64_t elements, std::int64_t sets)
      : type_(type),
        sets_(sets),
        stride_bytes_((elements * element_bytes(type) + kAlignment - 1) / kAlignment * kAlignment),
        bytes_(device, static_cast<std::size_t>(stride_bytes_ * sets)) {}

  void* at(std::int64_t set) const { return bytes_.data() + set * stride_bytes_; }
  ElementType type() const { return type_; }
  std::int64_t sets() const { return sets_; }
  std::int64_t stride() const { return stride_bytes_ / element_bytes(type_); }
  std::size_t bytes() const { return bytes_.bytes(); }

 private:
  static constexpr std::int64_t kAlignment = 256;
  ElementType type_;
  std::int64_t sets_;
  std::int64_t stride_bytes_;
  DeviceBuffer<std::byte> bytes_;
};

/// How many sets of so many bytes it takes to cycle through three times the L2 cache.
inline std::int64_t sets_beyond_cache(const Device& device, std::int64_t bytes) {
  return 3 * static_cast<std::int64_t>(device.l2_bytes()) / bytes + 1;
}

}  // namespace gpulift
