#include <algorithm>
#include <cstdint>
#include <stdexcept>

#include "core/cuda/check.hpp"
#include "kernels/pattern.hpp"
#include "kernels/verify.hpp"

namespace gpulift {
namespace {

using Counter = unsigned long long;  // the type that CUDA's 64-bit atomics take

constexpr int kThreads = 256;
constexpr std::size_t kMaxBlocks = 2048;  // the kernels stride over the rest

unsigned blocks_for(std::size_t items) {
  return static_cast<unsigned>(std::clamp<std::size_t>((items + kThreads - 1) / kThreads, 1, kMaxBlocks));
}

__device__ std::size_t first_item() { return std::size_t{blockIdx.x} * kThreads + threadIdx.x; }
__device__ std::size_t item_stride() { return std::size_t{gridDim.x} * kThreads; }

/// How many of the 8 bytes of two words differ.
__device__ int differing_bytes(std::uint64_t left, std::uint64_t right) {
  const std::uint64_t difference = left ^ right;
  int count = 0;
  for (int shift = 0; shift < 64; shift += 8) count += ((difference >> shift) & 0xFF) != 0 ? 1 : 0;
  return count;
}

__device__ std::uint64_t low_bytes(const std::uint64_t* word, std::size_t bytes) {
  const auto* data = reinterpret_cast<const unsigned char*>(word);
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i) value |= std::uint64_t{data[i]} << (8 * i);
  return value;
}

/// Words of the pattern, or of a buffer.
struct Pattern {
  std::uint64_t seed;
  std::uint64_t first_word;
  __device__ std::uint64_t word(std::size_t index) const { return random_bits(seed, first_word + index); }
  __device__ std::uint64_t tail(std::size_t index, std::size_t bytes) const {
    return word(index) & ((std::uint64_t{1} << (8 * bytes)) - 1);
  }
};

struct Words {
  const std::uint64_t* data;
  __device__ std::uint64_t word(std::size_t index) const { return data[index]; }
  __device__ std::uint64_t tail(std::size_t index, std::size_t bytes) const { return low_bytes(data + index, bytes); }
};

template <typename Expected>
__global__ void difference_kernel(Words actual, Expected expected, std::size_t bytes, Counter* result) {
  const std::size_t words = bytes / 8;
  Counter count = 0;
  for (std::size_t i = first_item(); i < words; i += item_stride()) {
    count += differing_bytes(actual.word(i), expected.word(i));
  }
  if (first_item() == 0 && bytes % 8 != 0) {
    count += differing_bytes(actual.tail(words, bytes % 8), expected.tail(words, bytes % 8));
  }
  if (count != 0) atomicAdd(result, count);
}

__global__ void word_difference_kernel(const std::uint32_t* data, std::size_t words, std::uint32_t word,
                                       Counter* result) {
  Counter count = 0;
  for (std::size_t i = first_item(); i < words; i += item_stride()) count += data[i] != word ? 1 : 0;
  if (count != 0) atomicAdd(result, count);
}

__global__ void word_sum_kernel(const std::uint32_t* data, std::size_t words, std::uint32_t* result) {
  std::uint32_t sum = 0;
  for (std::size_t i = first_item(); i < words; i += item_stride()) sum += data[i];
  atomicAdd(result, sum);
}

__global__ void sum_kernel(const float* data, std::size_t count, double* result) {
  double sum = 0;
  for (std::size_t i = first_item(); i < count; i += item_stride()) sum += static_cast<double>(data[i]);
  atomicAdd(result, sum);
}

/// The bits of non-negative doubles order as the doubles do, and those of a positive NaN lie above all others: an
/// integer maximum over bits finds the largest error and lets NaN win.
__device__ Counter error_bits(double actual, double expected, double floor) {
  const double error = fabs(actual - expected) / fmax(fabs(expected), floor);
  return isnan(error) ? Counter{0x7FF8000000000000} : static_cast<Counter>(__double_as_longlong(error));
}

template <typename Actual, typename Expected>
__global__ void error_kernel(const Actual* actual, const Expected* expected, std::size_t count, double floor,
                             Counter* result) {
  Counter largest = 0;
  for (std::size_t i = first_item(); i < count; i += item_stride()) {
    largest = max(largest, error_bits(static_cast<double>(static_cast<float>(actual[i])),
                                      static_cast<double>(expected[i]), floor));
  }
  if (largest != 0) atomicMax(result, largest);
}

const std::uint64_t* aligned_words(const void* data) {
  if (reinterpret_cast<std::uintptr_t>(data) % 8 != 0) {
    throw std::invalid_argument("Verifier: the data must be aligned to 8 bytes");
  }
  return static_cast<const std::uint64_t*>(data);
}

}  // namespace

template <typename T>
void Verifier::clear(cudaStream_t stream) const {
  check(cudaMemsetAsync(result_.data(), 0, sizeof(T), stream));
}

template <typename T>
T Verifier::read(cudaStream_t stream) const {
  check(cudaGetLastError());
  T value{};
  check(cudaMemcpyAsync(&value, result_.data(), sizeof(T), cudaMemcpyDeviceToHost, stream));
  check(cudaStreamSynchronize(stream));
  return value;
}

double Verifier::wrong_bytes(const void* data, std::size_t bytes, std::uint64_t seed, cudaStream_t stream,
                             std::uint64_t first_word) const {
  const Words actual{aligned_words(data)};
  clear<Counter>(stream);
  difference_kernel<<<blocks_for(bytes / 8), kThreads, 0, stream>>>(actual, Pattern{seed, first_word}, bytes,
                                                                    reinterpret_cast<Counter*>(result_.data()));
  return static_cast<double>(read<Counter>(stream));
}

double Verifier::different_bytes(const void* left, const void* right, std::size_t bytes, cudaStream_t stream) const {
  const Words actual{aligned_words(left)};
  const Words expected{aligned_words(right)};
  clear<Counter>(stream);
  difference_kernel<<<blocks_for(bytes / 8), kThreads, 0, stream>>>(actual, expected, bytes,
                                                                    reinterpret_cast<Counter*>(result_.data()));
  return static_cast<double>(read<Counter>(stream));
}

double Verifier::different_words(const void* data, std::size_t words, std::uint32_t word, cudaStream_t stream) const {
  clear<Counter>(stream);
  word_difference_kernel<<<blocks_for(words), kThreads, 0, stream>>>(static_cast<const std::uint32_t*>(data), words,
                                                                     word, reinterpret_cast<Counter*>(result_.data()));
  return static_cast<double>(read<Counter>(stream));
}

template <typename Actual, typename Expected>
double Verifier::max_relative_error(const Actual* actual, const Expected* expected, std::size_t count, double floor,
                                    cudaStream_t stream) const {
  clear<Counter>(stream);
  error_kernel<<<blocks_for(count), kThreads, 0, stream>>>(actual, expected, count, floor,
                                                           reinterpret_cast<Counter*>(result_.data()));
  return read<double>(stream);
}

template double Verifier::max_relative_error(const float*, const float*, std::size_t, double, cudaStream_t) const;
template double Verifier::max_relative_error(const float*, const double*, std::size_t, double, cudaStream_t) const;
template double Verifier::max_relative_error(const __half*, const float*, std::size_t, double, cudaStream_t) const;
template double Verifier::max_relative_error(const __half*, const double*, std::size_t, double, cudaStream_t) const;
template double Verifier::max_relative_error(const __nv_bfloat16*, const float*, std::size_t, double,
                                             cudaStream_t) const;
template double Verifier::max_relative_error(const __nv_bfloat16*, const double*, std::size_t, double,
                                             cudaStream_t) const;

double Verifier::sum(const float* data, std::size_t count, cudaStream_t stream) const {
  clear<double>(stream);
  sum_kernel<<<blocks_for(count), kThreads, 0, stream>>>(data, count, result_.data());
  return read<double>(stream);
}

std::uint32_t Verifier::sum_of_words(const void* data, std::size_t words, cudaStream_t stream) const {
  clear<std::uint32_t>(stream);
  word_sum_kernel<<<blocks_for(words), kThreads, 0, stream>>>(static_cast<const std::uint32_t*>(data), words,
                                                              reinterpret_cast<std::uint32_t*>(result_.data()));
  return read<std::uint32_t>(stream);
}

}  // namespace gpulift
