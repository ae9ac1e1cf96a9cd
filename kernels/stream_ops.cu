#include <stdexcept>

#include "core/cuda/check.hpp"
#include "kernels/stream_ops.hpp"

namespace gpulift {
namespace {

// Bandwidth needs bytes in flight: 4.8 TB/s times about 0.8 us of loaded latency is 3.8 MB, 29 kB on each of an H200's
// 132 multiprocessors. Eight blocks of 256 threads with one 16-byte load each ask for 32 KiB. More loads per thread
// make reads and writes come in longer bursts and cost 5 % of a copy (measured on an H200: 4269 GB/s with one, 4054
// with four). Each block moves one tile, so that the hardware balances the blocks: with a fixed share for each block
// the slowest multiprocessor would decide.
constexpr int kThreads = 256;
constexpr int kUnroll = 1;
constexpr std::size_t kTile = std::size_t{kThreads} * kUnroll;  // float4 elements
constexpr int kReadTiles = 32;  // tiles of one block of the read, which ends in a reduction: few blocks, few reductions

/// Loads the block's whole tile before it stores any of it. `count` in float4 elements.
template <typename Load, typename Store>
__device__ void move_tile(std::size_t tile, std::size_t count, Load load, Store store) {
  const std::size_t first = tile * kTile + threadIdx.x;
  float4 held[kUnroll];
  if ((tile + 1) * kTile <= count) {
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) held[k] = load(first + k * kThreads);
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) store(first + k * kThreads, held[k]);
  } else {
    for (std::size_t i = first; i < count; i += kThreads) store(i, load(i));
  }
}

// The data is used once, which the load and store say (evict first), so that it does not push itself out of the L2.
__global__ __launch_bounds__(kThreads) void copy_kernel(const float4* __restrict__ input, float4* __restrict__ output,
                                                        std::size_t count) {
  move_tile(
      blockIdx.x, count, [&](std::size_t i) { return __ldcs(input + i); },
      [&](std::size_t i, float4 value) { __stcs(output + i, value); });
}

__global__ __launch_bounds__(kThreads) void write_kernel(float4* __restrict__ output, std::size_t count, float value) {
  move_tile(
      blockIdx.x, count, [&](std::size_t) { return float4{value, value, value, value}; },
      [&](std::size_t i, float4 values) { __stcs(output + i, values); });
}

__device__ float4 fma4(float scalar, float4 right, float4 left) {
  return {fmaf(scalar, right.x, left.x), fmaf(scalar, right.y, left.y), fmaf(scalar, right.z, left.z),
          fmaf(scalar, right.w, left.w)};
}

__global__ __launch_bounds__(kThreads) void triad_kernel(const float4* __restrict__ left,
                                                         const float4* __restrict__ right, float scalar,
                                                         float4* __restrict__ output, std::size_t count) {
  move_tile(
      blockIdx.x, count, [&](std::size_t i) { return fma4(scalar, __ldcs(right + i), __ldcs(left + i)); },
      [&](std::size_t i, float4 value) { __stcs(output + i, value); });
}

__device__ std::uint32_t sum_words(float4 value) {
  return __float_as_uint(value.x) + __float_as_uint(value.y) + __float_as_uint(value.z) + __float_as_uint(value.w);
}

/// One partial sum for each warp, so that the end of a block costs no barrier.
__global__ __launch_bounds__(kThreads) void read_kernel(const float4* __restrict__ input, std::size_t count,
                                                        std::uint32_t* __restrict__ partial_sums) {
  std::uint32_t sum = 0;
  const std::size_t first_tile = std::size_t{blockIdx.x} * kReadTiles;
  for (int tile = 0; tile < kReadTiles; ++tile) {
    move_tile(
        first_tile + tile, count, [&](std::size_t i) { return __ldcs(input + i); },
        [&](std::size_t, float4 value) { sum += sum_words(value); });
  }
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, distance);
  if (threadIdx.x % 32 == 0) partial_sums[blockIdx.x * (kThreads / 32) + threadIdx.x / 32] = sum;
}

std::size_t divide_up(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

/// `count` float elements as float4 elements.
std::size_t vectors(std::size_t count) {
  if (count % 4 != 0) throw std::invalid_argument("stream kernels: the count must be a multiple of 4");
  return count / 4;
}

template <typename Vector, typename Scalar>
Vector* aligned(Scalar* data) {
  if (reinterpret_cast<std::uintptr_t>(data) % sizeof(Vector) != 0) {
    throw std::invalid_argument("stream kernels: the data must be aligned to 16 bytes");
  }
  return reinterpret_cast<Vector*>(data);
}

unsigned tiles(std::size_t count) { return static_cast<unsigned>(divide_up(vectors(count), kTile)); }

unsigned read_blocks(std::size_t count) { return static_cast<unsigned>(divide_up(vectors(count), kTile * kReadTiles)); }

}  // namespace

std::size_t stream_read_partials(std::size_t count) { return std::size_t{read_blocks(count)} * (kThreads / 32); }

void stream_read(const float* input, std::size_t count, std::uint32_t* partial_sums, cudaStream_t stream) {
  const auto* in = aligned<const float4>(input);
  if (count == 0) return;
  read_kernel<<<read_blocks(count), kThreads, 0, stream>>>(in, vectors(count), partial_sums);
  check(cudaGetLastError());
}

void stream_write(float* output, std::size_t count, float value, cudaStream_t stream) {
  auto* out = aligned<float4>(output);
  if (count == 0) return;
  write_kernel<<<tiles(count), kThreads, 0, stream>>>(out, vectors(count), value);
  check(cudaGetLastError());
}

void stream_copy(const float* input, float* output, std::size_t count, cudaStream_t stream) {
  const auto* in = aligned<const float4>(input);
  auto* out = aligned<float4>(output);
  if (count == 0) return;
  copy_kernel<<<tiles(count), kThreads, 0, stream>>>(in, out, vectors(count));
  check(cudaGetLastError());
}

void stream_triad(const float* left, const float* right, float scalar, float* output, std::size_t count,
                  cudaStream_t stream) {
  const auto* l = aligned<const float4>(left);
  const auto* r = aligned<const float4>(right);
  auto* out = aligned<float4>(output);
  if (count == 0) return;
  triad_kernel<<<tiles(count), kThreads, 0, stream>>>(l, r, scalar, out, vectors(count));
  check(cudaGetLastError());
}

}  // namespace gpulift
