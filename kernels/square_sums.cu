#include <algorithm>

#include "kernels/packed.hpp"
#include "kernels/square_sums.hpp"

namespace gpulift {
namespace {

constexpr int kThreads = 256;
constexpr int kPacks = kSquaresPiece / (kThreads * kPack);  // of a thread, all under way at a time

__device__ void add_squares(float& sum, const Pack& values) {
#pragma unroll
  for (int k = 0; k < kPack; ++k) sum += values.at[k] * values.at[k];
}

__global__ __launch_bounds__(kThreads) void squares_kernel(const NormedTensor* tensors, const TensorPiece* pieces,
                                                           float* sums) {
  const TensorPiece piece = pieces[blockIdx.x];
  const NormedTensor tensor = tensors[piece.tensor];
  const std::size_t start = std::size_t{piece.index} * kSquaresPiece;
  const std::size_t end = min(tensor.count, start + kSquaresPiece);
  const std::size_t first = start + std::size_t{threadIdx.x} * kPack;
  float sum = 0;
  if (end - start == kSquaresPiece) {
    uint4 bits[kPacks];  // unpacked behind the last load, since none is issued while an earlier one is waited for
#pragma unroll
    for (int p = 0; p < kPacks; ++p) bits[p] = load_bits(tensor.data + first + std::size_t{kThreads} * p * kPack);
#pragma unroll
    for (int p = 0; p < kPacks; ++p) add_squares(sum, unpack(bits[p]));
  } else {
    for (std::size_t i = first; i < end; i += std::size_t{kThreads} * kPack) {
      add_squares(sum, load(tensor.data + i, end - i < kPack ? static_cast<int>(end - i) : kPack));
    }
  }
  sum = block_reduce<kThreads>(sum, Plus{});
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

/// f of the numbers from begin to end, summed by a block.
template <typename F>
__device__ float sum_of(const float* data, std::size_t begin, std::size_t end, F f) {
  float sum = 0;
#pragma unroll 4
  for (std::size_t i = begin + threadIdx.x; i < end; i += kThreads) sum += f(data[i]);
  return block_reduce<kThreads>(sum, Plus{});
}

__global__ __launch_bounds__(kThreads) void roots_kernel(const float* sums, const std::size_t* first, float* roots) {
  const float sum = sum_of(sums, first[blockIdx.x], first[blockIdx.x + 1], [](float x) { return x; });
  if (threadIdx.x == 0) roots[blockIdx.x] = sqrtf(sum);
}

__global__ __launch_bounds__(kThreads) void norm_kernel(const float* norms, std::size_t count, float* norm) {
  const float sum = sum_of(norms, 0, count, [](float x) { return x * x; });
  if (threadIdx.x == 0) *norm = sqrtf(sum);
}

__global__ __launch_bounds__(kThreads) void reference_kernel(NormedTensor tensor, double* sum) {
  double own = 0;
  const std::size_t stride = std::size_t{gridDim.x} * kThreads;
  for (std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x; i < tensor.count; i += stride) {
    const auto value = static_cast<double>(__bfloat162float(tensor.data[i]));
    own += value * value;
  }
  atomicAdd(sum, own);
}

}  // namespace

void square_sums(const NormedTensor* tensors, const TensorPiece* pieces, std::size_t piece_count, float* sums,
                 cudaStream_t stream) {
  if (piece_count == 0) return;
  squares_kernel<<<static_cast<unsigned>(piece_count), kThreads, 0, stream>>>(tensors, pieces, sums);
  check(cudaGetLastError());
}

void roots_of_sums(const float* sums, const std::size_t* first, std::size_t count, float* roots, cudaStream_t stream) {
  if (count == 0) return;
  roots_kernel<<<static_cast<unsigned>(count), kThreads, 0, stream>>>(sums, first, roots);
  check(cudaGetLastError());
}

void norm_of_norms(const float* norms, std::size_t count, float* norm, cudaStream_t stream) {
  norm_kernel<<<1, kThreads, 0, stream>>>(norms, count, norm);
  check(cudaGetLastError());
}

void square_sum_reference(const NormedTensor& tensor, double* sum, cudaStream_t stream) {
  reference_kernel<<<64, kThreads, 0, stream>>>(tensor, sum);
  check(cudaGetLastError());
}

}  // namespace gpulift
