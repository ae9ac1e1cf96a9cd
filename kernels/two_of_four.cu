#include <stdexcept>

#include "kernels/packed.hpp"
#include "kernels/two_of_four.hpp"

namespace gpulift {
namespace {

constexpr int kThreads = 256;  // a load of 16 bytes each: see stream_ops.cu for why no more are under way
constexpr unsigned kPlaceBits = 2;
static_assert(kPlacesOf == kPack, "a thread has one access and one byte");

/// Of four numbers in two words the places of the first two that are not zero.
__device__ unsigned places_in(std::uint32_t low, std::uint32_t high) {
  const std::uint32_t words[2] = {low, high};
  unsigned places = 0;
  unsigned found = 0;
#pragma unroll
  for (unsigned place = 0; place < 4; ++place) {
    const bool kept = ((words[place / 2] >> (16 * (place % 2))) & 0x7FFFu) != 0;  // minus zero is one
    if (kept && found < 2) places |= place << (kPlaceBits * found++);
  }
  return places;
}

/// The two numbers at the places, in the order of the memory: bytes 2p and 2p + 1 of the eight are number p's.
__device__ std::uint32_t pair_at(std::uint32_t low, std::uint32_t high, unsigned places) {
  const unsigned first = places & 3u;
  const unsigned second = (places >> kPlaceBits) & 3u;
  return __byte_perm(low, high, 0x1010u + 0x22u * first + 0x2200u * second);
}

__global__ __launch_bounds__(kThreads) void find_kernel(const uint4* __restrict__ mask, std::size_t packs,
                                                        std::uint8_t* __restrict__ places) {
  const std::size_t index = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= packs) return;
  const uint4 bits = mask[index];
  places[index] = static_cast<std::uint8_t>(places_in(bits.x, bits.y) | (places_in(bits.z, bits.w) << 4));
}

// What is read is not read again, what is written is multiplied next: the cache is left to it.
__global__ __launch_bounds__(kThreads) void gather_kernel(const uint4* __restrict__ from, std::size_t packs,
                                                          const std::uint8_t* __restrict__ places,
                                                          uint2* __restrict__ values) {
  const std::size_t index = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= packs) return;
  const uint4 bits = __ldcs(from + index);
  const unsigned both = __ldcs(places + index);
  values[index] = {pair_at(bits.x, bits.y, both), pair_at(bits.z, bits.w, both >> 4)};
}

/// How many accesses; throws where some would not be whole.
std::size_t packs_of(std::size_t count) {
  if (count % kPack != 0) throw std::invalid_argument("two of four: the count must be a multiple of 8");
  return count / kPack;
}

unsigned blocks_of(std::size_t packs) { return static_cast<unsigned>((packs + kThreads - 1) / kThreads); }

}  // namespace

void find_places(const __nv_bfloat16* mask, std::size_t count, std::uint8_t* places, cudaStream_t stream) {
  const std::size_t packs = packs_of(count);
  require_aligned({mask});
  if (packs == 0) return;
  find_kernel<<<blocks_of(packs), kThreads, 0, stream>>>(reinterpret_cast<const uint4*>(mask), packs, places);
  check(cudaGetLastError());
}

void gather_places(const __nv_bfloat16* from, std::size_t count, const std::uint8_t* places, __nv_bfloat16* values,
                   cudaStream_t stream) {
  const std::size_t packs = packs_of(count);
  require_aligned({from, values});
  if (packs == 0) return;
  gather_kernel<<<blocks_of(packs), kThreads, 0, stream>>>(reinterpret_cast<const uint4*>(from), packs, places,
                                                           reinterpret_cast<uint2*>(values));
  check(cudaGetLastError());
}

}  // namespace gpulift
