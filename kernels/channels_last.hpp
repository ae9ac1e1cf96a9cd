#pragma once
// Images from NCHW to NHWC: of each, a transposition of channels x pixels.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace gpulift {

struct ImageCounts {
  std::size_t images;
  std::size_t channels;
  std::size_t pixels;  // of one channel: height x width

  std::size_t elements() const { return images * channels * pixels; }
};

/// to[image][pixel][channel] = from[image][channel][pixel], of any type of 16 bit. Writes 16 bytes at a
/// time where channels are a multiple of 8, pixels one of 4 and both pointers aligned to 16 bytes; reads as many, or 8.
void to_channels_last(const ImageCounts& counts, const std::uint16_t* from, std::uint16_t* to, cudaStream_t stream);

/// The same by a thread for each element: what the other is held against.
void to_channels_last_reference(const ImageCounts& counts, const std::uint16_t* from, std::uint16_t* to,
                                cudaStream_t stream);

}  // namespace gpulift
