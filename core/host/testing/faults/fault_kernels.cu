#include "core/cuda/check.hpp"
#include "core/host/testing/faults/fault_kernels.hpp"

namespace gpulift::testing_faults {
namespace {

constexpr int kThreads = 256;

__device__ std::size_t thread_index() { return std::size_t{blockIdx.x} * kThreads + threadIdx.x; }

unsigned blocks_for(std::size_t threads) { return static_cast<unsigned>((threads + kThreads - 1) / kThreads); }

template <typename T>
__global__ __launch_bounds__(kThreads) void copy_kernel(const T* __restrict__ input, T* __restrict__ output,
                                                        std::size_t count) {
  const std::size_t i = thread_index();
  if (i < count) output[i] = input[i];
}

// Not __restrict__: it may be in place.
__global__ __launch_bounds__(kThreads) void scale_and_add_kernel(const float4* input, float4* output, std::size_t count,
                                                                 float factor, float summand) {
  const std::size_t i = thread_index();
  if (i >= count) return;
  const float4 in = input[i];
  output[i] = {fmaf(factor, in.x, summand), fmaf(factor, in.y, summand), fmaf(factor, in.z, summand),
               fmaf(factor, in.w, summand)};
}

template <typename T>
__global__ __launch_bounds__(kThreads) void add_bias_relu_kernel(T* matrix, const __nv_bfloat16* __restrict__ bias,
                                                                 std::size_t rows, std::size_t count) {
  const std::size_t i = thread_index();
  if (i >= count) return;
  matrix[i] = static_cast<T>(fmaxf(0.0F, static_cast<float>(matrix[i]) + static_cast<float>(bias[i % rows])));
}

template <typename T>
void launch_bias_relu(T* matrix, const __nv_bfloat16* bias, std::int64_t rows, std::int64_t columns,
                      cudaStream_t stream) {
  const auto count = static_cast<std::size_t>(rows * columns);
  add_bias_relu_kernel<<<blocks_for(count), kThreads, 0, stream>>>(matrix, bias, static_cast<std::size_t>(rows), count);
  check(cudaGetLastError());
}

}  // namespace

void copy_vectors(const std::byte* input, std::byte* output, std::size_t bytes, std::size_t shared_bytes,
                  cudaStream_t stream) {
  const std::size_t count = bytes / sizeof(uint4);
  copy_kernel<<<blocks_for(count), kThreads, shared_bytes, stream>>>(reinterpret_cast<const uint4*>(input),
                                                                     reinterpret_cast<uint4*>(output), count);
  check(cudaGetLastError());
}

std::size_t allow_most_shared_bytes(int device_index) {
  int bytes = 0;
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device_index));
  check(cudaFuncSetAttribute(copy_kernel<uint4>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  return static_cast<std::size_t>(bytes);
}

void copy_bytes(const std::byte* input, std::byte* output, std::size_t bytes, cudaStream_t stream) {
  copy_kernel<<<blocks_for(bytes), kThreads, 0, stream>>>(reinterpret_cast<const unsigned char*>(input),
                                                          reinterpret_cast<unsigned char*>(output), bytes);
  check(cudaGetLastError());
}

void scale_and_add(const float* input, float* output, std::size_t count, float factor, float summand,
                   cudaStream_t stream) {
  scale_and_add_kernel<<<blocks_for(count / 4), kThreads, 0, stream>>>(
      reinterpret_cast<const float4*>(input), reinterpret_cast<float4*>(output), count / 4, factor, summand);
  check(cudaGetLastError());
}

void add_bias_relu(__nv_bfloat16* matrix, const __nv_bfloat16* bias, std::int64_t rows, std::int64_t columns,
                   cudaStream_t stream) {
  launch_bias_relu(matrix, bias, rows, columns, stream);
}

void add_bias_relu(float* matrix, const __nv_bfloat16* bias, std::int64_t rows, std::int64_t columns,
                   cudaStream_t stream) {
  launch_bias_relu(matrix, bias, rows, columns, stream);
}

}  // namespace gpulift::testing_faults
