#include <stdexcept>
#include <type_traits>

#include "core/cuda/check.hpp"
#include "kernels/channels_last.hpp"
#include "kernels/packed.hpp"

namespace gpulift {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;

/// Where a block's tile begins. Tiles along the pixels come first, then those along the channels.
struct Tile {
  std::size_t image;
  std::size_t channel;
  std::size_t pixel;
};

template <int kChannels, int kPixels>
struct Tiling {
  unsigned along_channels;
  unsigned along_pixels;

  explicit Tiling(const ImageCounts& counts)
      : along_channels(static_cast<unsigned>((counts.channels + kChannels - 1) / kChannels)),
        along_pixels(static_cast<unsigned>((counts.pixels + kPixels - 1) / kPixels)) {}
  std::size_t tiles(std::size_t images) const { return images * along_channels * along_pixels; }
  __device__ Tile at(unsigned number) const {
    return {.image = number / along_pixels / along_channels,
            .channel = std::size_t{number / along_pixels % along_channels} * kChannels,
            .pixel = std::size_t{number % along_pixels} * kPixels};
  }
};

// A thread holds 8 channels of 8 pixels. Eight lanes side by side fill a line of 128 bytes of each pixel that they
// write; four fill half a line of each channel that they read, and the next warp reads the other half.
constexpr int kLanesOfChannels = 8;
constexpr int kLanesOfPixels = kWarp / kLanesOfChannels;
using WideTiling = Tiling<kLanesOfChannels * kPack, kWarps * kLanesOfPixels * kPack>;

/// Word w of a channel has its pixels 2w and 2w + 1, the first in the low half. Returns 8 channels of a pixel.
__device__ uint4 pixel_of(const std::uint32_t (&channels)[kPack][kPack / 2], int pixel) {
  const unsigned halves = pixel % 2 == 0 ? 0x5410 : 0x7632;
  const auto pair = [&](int c) {
    return __byte_perm(channels[2 * c][pixel / 2], channels[2 * c + 1][pixel / 2], halves);
  };
  return {pair(0), pair(1), pair(2), pair(3)};
}

/// Channels must be a multiple of 8, pixels of `kTogether`: 8, or 4 whose loads take 8 bytes each.
template <int kTogether>
__global__ __launch_bounds__(kThreads) void wide_kernel(ImageCounts counts, WideTiling tiling,
                                                        const std::uint16_t* from, std::uint16_t* to) {
  using Bits = std::conditional_t<kTogether == kPack, uint4, uint2>;
  const Tile tile = tiling.at(blockIdx.x);
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned warp = threadIdx.x / kWarp;
  const std::size_t channel = tile.channel + lane % kLanesOfChannels * kPack;
  const std::size_t pixel = tile.pixel + (warp * kLanesOfPixels + lane / kLanesOfChannels) * kPack;
  if (channel >= counts.channels || pixel >= counts.pixels) return;

  const bool whole = kTogether == kPack || counts.pixels - pixel >= kPack;

  std::uint32_t channels[kPack][kPack / 2] = {};
#pragma unroll
  for (int c = 0; c < kPack; ++c) {
    const std::uint16_t* const row = from + (tile.image * counts.channels + channel + c) * counts.pixels + pixel;
#pragma unroll
    for (int p = 0; p < kPack; p += kTogether) {
      if (p > 0 && !whole) continue;
      const Bits bits = *reinterpret_cast<const Bits*>(row + p);
      memcpy(&channels[c][p / 2], &bits, sizeof bits);
    }
  }
#pragma unroll
  for (int p = 0; p < kPack; ++p) {
    if (p >= kTogether && !whole) return;
    const std::size_t place = (tile.image * counts.pixels + pixel + p) * counts.channels + channel;
    __stcs(reinterpret_cast<uint4*>(to + place), pixel_of(channels, p));  // an assignment became four stores
  }
}

constexpr int kNarrowElements = 4096;  // of a tile
constexpr int kFewChannels = 4;        // of images as they are read: 1, 3 or 4
constexpr int kManyChannels = 64;
template <int kChannels>
using NarrowTiling = Tiling<kChannels, kNarrowElements / kChannels>;

/// One element at a time through shared memory.
template <int kChannels>
__global__ __launch_bounds__(kThreads) void narrow_kernel(ImageCounts counts, NarrowTiling<kChannels> tiling,
                                                          const std::uint16_t* from, std::uint16_t* to) {
  constexpr int kPixels = kNarrowElements / kChannels;
  constexpr int kLanesOfOnePixel = kChannels < kWarp ? kChannels : kWarp;
  constexpr int kPad = kWarp / kLanesOfOnePixel > 2 ? kWarp / kLanesOfOnePixel : 2;  // a warp reads from 32 banks
  __shared__ std::uint16_t held[kChannels][kPixels + kPad];
  const Tile tile = tiling.at(blockIdx.x);
#pragma unroll 8
  for (int i = static_cast<int>(threadIdx.x); i < kNarrowElements; i += kThreads) {
    const std::size_t channel = tile.channel + i / kPixels;
    const std::size_t pixel = tile.pixel + i % kPixels;
    if (channel >= counts.channels || pixel >= counts.pixels) continue;
    held[i / kPixels][i % kPixels] = from[(tile.image * counts.channels + channel) * counts.pixels + pixel];
  }
  __syncthreads();
#pragma unroll 8
  for (int i = static_cast<int>(threadIdx.x); i < kNarrowElements; i += kThreads) {
    const std::size_t channel = tile.channel + i % kChannels;
    const std::size_t pixel = tile.pixel + i / kChannels;
    if (channel >= counts.channels || pixel >= counts.pixels) continue;
    to[(tile.image * counts.pixels + pixel) * counts.channels + channel] = held[i % kChannels][i / kChannels];
  }
}

__global__ __launch_bounds__(kThreads) void reference_kernel(ImageCounts counts, const std::uint16_t* from,
                                                             std::uint16_t* to) {
  const std::size_t index = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= counts.images * counts.channels * counts.pixels) return;
  const std::size_t channel = index % counts.channels;
  const std::size_t pixel = index / counts.channels % counts.pixels;
  const std::size_t image = index / counts.channels / counts.pixels;
  to[index] = from[(image * counts.channels + channel) * counts.pixels + pixel];
}

/// Throws std::invalid_argument where the grid cannot have as many.
unsigned grid_of(std::size_t blocks) {
  if (blocks > 0x7FFFFFFFU) throw std::invalid_argument("to_channels_last: too many images");
  return static_cast<unsigned>(blocks);
}

template <typename Tiles, typename Kernel>
void launch(Kernel kernel, const ImageCounts& counts, const std::uint16_t* from, std::uint16_t* to,
            cudaStream_t stream) {
  const Tiles tiling(counts);
  kernel<<<grid_of(tiling.tiles(counts.images)), kThreads, 0, stream>>>(counts, tiling, from, to);
  check(cudaGetLastError());
}

bool aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

}  // namespace

void to_channels_last(const ImageCounts& counts, const std::uint16_t* from, std::uint16_t* to, cudaStream_t stream) {
  if (counts.elements() == 0) return;
  const bool wide = counts.channels % kPack == 0 && aligned(from) && aligned(to);
  if (wide && counts.pixels % kPack == 0) {
    launch<WideTiling>(wide_kernel<kPack>, counts, from, to, stream);
  } else if (wide && counts.pixels % (kPack / 2) == 0) {
    launch<WideTiling>(wide_kernel<kPack / 2>, counts, from, to, stream);
  } else if (counts.channels <= kFewChannels) {
    launch<NarrowTiling<kFewChannels>>(narrow_kernel<kFewChannels>, counts, from, to, stream);
  } else {
    launch<NarrowTiling<kManyChannels>>(narrow_kernel<kManyChannels>, counts, from, to, stream);
  }
}

void to_channels_last_reference(const ImageCounts& counts, const std::uint16_t* from, std::uint16_t* to,
                                cudaStream_t stream) {
  if (counts.elements() == 0) return;
  reference_kernel<<<grid_of((counts.elements() + kThreads - 1) / kThreads), kThreads, 0, stream>>>(counts, from, to);
  check(cudaGetLastError());
}

}  // namespace gpulift
