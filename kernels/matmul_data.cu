#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cub/block/block_reduce.cuh>
#include <stdexcept>

#include "kernels/matmul_data.hpp"
#include "kernels/matmul_rows.cuh"
#include "kernels/normal.cuh"
#include "kernels/pattern.hpp"

namespace gpulift {
namespace {

constexpr int kThreads = 256;

/// Draws of their own, so that an element that is kept is the same as without zeros.
__device__ bool is_zero(const NormalMatrix& source, std::int64_t index) {
  if (source.zeros == Zeros::kNone) return false;
  if (source.zeros == Zeros::kHalf) return random_bits(~source.seed, index) % 2 == 0;
  constexpr int kPairs = 6;
  constexpr int kZeros[kPairs] = {0b0011, 0b0101, 0b1001, 0b0110, 0b1010, 0b1100};  // of four neighbours
  return (kZeros[random_bits(~source.seed, index / 4) % kPairs] >> (index % 4)) % 2 == 1;
}

__device__ float value_at(const NormalMatrix& source, std::int64_t row, std::int64_t column) {
  const std::int64_t index = row * source.columns + column;
  if (is_zero(source, index)) return 0;
  if (source.mask) return 1;
  const float value = source.scale * standard_normals(random_bits(source.seed, index)).x;
  return source.integers ? fminf(fmaxf(rintf(value), -127.0f), 127.0f) : value;
}

template <typename T>
__global__ void fill_normals_kernel(T* data, NormalMatrix source, Rows rows, std::int64_t copies,
                                    std::int64_t copy_stride) {
  const std::int64_t width = source.columns + source.padding;
  const std::int64_t elements = rows.count * width;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < elements; i += step) {
    const std::int64_t column = i % width;
    const float number = column < source.columns ? value_at(source, row_number(rows, i / width), column) : 0.0f;
    const T value = static_cast<T>(number);
    for (std::int64_t copy = 0; copy < copies; ++copy) data[copy * copy_stride + i] = value;
  }
}

template <typename T>
__global__ void add_squared_error_kernel(const T* product, std::int64_t leading_dimension, Rows rows,
                                         std::int64_t columns, const double* reference, double* sums) {
  double difference_sum = 0;
  double reference_sum = 0;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < rows.count * columns;
       i += step) {
    const std::int64_t row = row_number(rows, i % rows.count);
    const double expected = reference[i];
    double got = 0;
    if constexpr (std::is_integral_v<T> || std::is_floating_point_v<T>) {
      got = static_cast<double>(product[(i / rows.count) * leading_dimension + row]);
    } else {
      got = static_cast<double>(static_cast<float>(product[(i / rows.count) * leading_dimension + row]));
    }
    difference_sum += (got - expected) * (got - expected);
    reference_sum += expected * expected;
  }
  using Reduce = cub::BlockReduce<double, kThreads>;
  __shared__ typename Reduce::TempStorage difference_storage;
  __shared__ typename Reduce::TempStorage reference_storage;
  difference_sum = Reduce(difference_storage).Sum(difference_sum);
  reference_sum = Reduce(reference_storage).Sum(reference_sum);
  if (threadIdx.x == 0) {
    atomicAdd(&sums[0], difference_sum);
    atomicAdd(&sums[1], reference_sum);
  }
}

/// Blocks for a loop over `elements`; more than enough to fill any device.
unsigned grid_size(std::int64_t elements) {
  constexpr std::int64_t kMostBlocks = 4096;
  return static_cast<unsigned>(std::clamp<std::int64_t>((elements + kThreads - 1) / kThreads, 1, kMostBlocks));
}

template <typename T>
void launch_fill(void* data, const NormalMatrix& source, const Rows& rows, std::int64_t copies,
                 std::int64_t copy_stride, cudaStream_t stream) {
  fill_normals_kernel<<<grid_size(rows.count * (source.columns + source.padding)), kThreads, 0, stream>>>(
      static_cast<T*>(data), source, rows, copies, copy_stride);
  check(cudaGetLastError());
}

template <typename T>
void launch_error(const ProductPart& product, const double* reference, double* sums, cudaStream_t stream) {
  add_squared_error_kernel<<<grid_size(product.rows.count * product.columns), kThreads, 0, stream>>>(
      static_cast<const T*>(product.data), product.leading_dimension, product.rows, product.columns, reference, sums);
  check(cudaGetLastError());
}

}  // namespace

std::int64_t element_bytes(ElementType type) {
  switch (type) {
    case ElementType::kFp64:
      return 8;
    case ElementType::kFp32:
    case ElementType::kInt32:
      return 4;
    case ElementType::kFp16:
    case ElementType::kBf16:
      return 2;
    case ElementType::kFp8E4m3:
    case ElementType::kInt8:
      return 1;
    case ElementType::kFp4E2m1:
      break;
  }
  throw std::invalid_argument("element_bytes: no type of whole bytes");
}

void fill_normals(void* data, ElementType type, const NormalMatrix& source, const Rows& rows, std::int64_t copies,
                  std::int64_t copy_stride, cudaStream_t stream) {
  switch (type) {
    case ElementType::kFp64:
      return launch_fill<double>(data, source, rows, copies, copy_stride, stream);
    case ElementType::kFp32:
      return launch_fill<float>(data, source, rows, copies, copy_stride, stream);
    case ElementType::kFp16:
      return launch_fill<__half>(data, source, rows, copies, copy_stride, stream);
    case ElementType::kBf16:
      return launch_fill<__nv_bfloat16>(data, source, rows, copies, copy_stride, stream);
    case ElementType::kFp8E4m3:
      return launch_fill<__nv_fp8_e4m3>(data, source, rows, copies, copy_stride, stream);
    case ElementType::kInt8:
      return launch_fill<std::int8_t>(data, source, rows, copies, copy_stride, stream);
    case ElementType::kFp4E2m1:
    case ElementType::kInt32:
      break;
  }
  throw std::invalid_argument("fill_normals: no such operand type");
}

void add_squared_error(const ProductPart& product, const double* reference, double* sums, cudaStream_t stream) {
  switch (product.type) {
    case ElementType::kFp32:
      return launch_error<float>(product, reference, sums, stream);
    case ElementType::kFp16:
      return launch_error<__half>(product, reference, sums, stream);
    case ElementType::kBf16:
      return launch_error<__nv_bfloat16>(product, reference, sums, stream);
    case ElementType::kInt32:
      return launch_error<std::int32_t>(product, reference, sums, stream);
    case ElementType::kFp64:
    case ElementType::kFp8E4m3:
    case ElementType::kFp4E2m1:
    case ElementType::kInt8:
      break;
  }
  throw std::invalid_argument("add_squared_error: no such product type");
}

}  // namespace gpulift
