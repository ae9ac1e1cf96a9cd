#include <cuda_pipeline.h>

#include <stdexcept>

#include "kernels/packed.hpp"
#include "kernels/softmax_cross_entropy.hpp"

namespace gpulift {
namespace {

constexpr int kThreads = 512;
constexpr int kBatch = 4;            // packs that a thread has under way at a time
constexpr float kLowest = -3.4e38F;  // finite, so that a logit of minus infinity gives exp(-inf), not NaN

/// A row in whole aligned packs, and what is loose before and behind them.
struct Row {
  __device__ Row(std::size_t index, int classes)
      : start(index * static_cast<std::size_t>(classes)),
        head(min(classes, (kPack - static_cast<int>(start % kPack)) % kPack)),
        packs((classes - head) / kPack),
        loose(classes - packs * kPack) {}
  __device__ std::size_t pack_at(int pack) const { return start + head + static_cast<std::size_t>(pack) * kPack; }
  __device__ std::size_t loose_at(int i) const { return start + (i < head ? i : i + packs * kPack); }
  std::size_t start;
  int head;
  int packs;
  int loose;  // at most 14
};

/// Calls f(bits, index of the pack) on all packs of the row and g(number) on the loose ones.
template <typename F, typename G>
__device__ void walk(const Row& row, const __nv_bfloat16* matrix, F f, G g) {
  const auto thread = static_cast<int>(threadIdx.x);
  for (int first = thread; first < row.packs; first += kThreads * kBatch) {
    uint4 bits[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int pack = first + b * kThreads;
      if (pack < row.packs) bits[b] = load_bits(matrix + row.pack_at(pack));
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int pack = first + b * kThreads;
      if (pack < row.packs) f(bits[b], pack);
    }
  }
  if (thread < row.loose) g(__bfloat162float(matrix[row.loose_at(thread)]));
}

template <typename F>
__device__ float reduce(float value, F combine) {
  return block_reduce<kThreads>(value, combine);
}

__device__ float largest_of(const Pack& values) {
  float largest = values.at[0];
#pragma unroll
  for (int k = 1; k < kPack; ++k) largest = fmaxf(largest, values.at[k]);
  return largest;
}

/// What __expf() is without its steps for results that are denormal, which here are zeros: two instructions, not five.
__device__ float fast_exp(float x) {
  constexpr float kLog2E = 1.442695041F;
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * kLog2E));
  return result;
}

/// A sum of exponentials relative to the largest number so far (Milakov and Gimelshein, 2018).
struct RunningSum {
  float largest = kLowest;
  float sum = 0;
  __device__ void raise(float to) {
    if (to <= largest) return;
    sum *= fast_exp(largest - to);
    largest = to;
  }
  __device__ void add(float value) { sum += fast_exp(value - largest); }
};

__device__ void fetch(uint4* to, const __nv_bfloat16* from) { __pipeline_memcpy_async(to, from, sizeof *to); }

/// A block a row. With room for the row in shared memory the logits are read once.
template <bool kHeld>
__global__ __launch_bounds__(kThreads, 2) void fused_kernel(CrossEntropy data) {
  extern __shared__ uint4 held[];
  const Row row(blockIdx.x, data.classes);
  const auto thread = static_cast<int>(threadIdx.x);
  RunningSum own;
  const auto take = [&](uint4 bits, int) {
    const Pack values = unpack(bits);
    own.raise(largest_of(values));
#pragma unroll
    for (int k = 0; k < kPack; ++k) own.add(values.at[k]);
  };
  const auto take_loose = [&](float value) {
    own.raise(value);
    own.add(value);
  };
  if constexpr (kHeld) {
    // All of the row is under way before any of it is used. A thread waits for what it asked for alone, and reads no
    // other.
    const int middle = row.packs / 2;
    int pack = thread;
    for (; pack < middle; pack += kThreads) fetch(held + pack, data.logits + row.pack_at(pack));
    __pipeline_commit();
    for (; pack < row.packs; pack += kThreads) fetch(held + pack, data.logits + row.pack_at(pack));
    __pipeline_commit();
    if (thread < row.loose) take_loose(__bfloat162float(data.logits[row.loose_at(thread)]));
    __pipeline_wait_prior(1);
    for (pack = thread; pack < middle; pack += kThreads) take(held[pack], pack);
    __pipeline_wait_prior(0);
    for (; pack < row.packs; pack += kThreads) take(held[pack], pack);
  } else {
    walk(row, data.logits, take, take_loose);
  }
  const float largest = reduce(own.largest, Larger{});
  const float sum = reduce(own.sum * fast_exp(own.largest - largest), Plus{});
  const float factor = data.scale / sum;

  const auto to_gradient = [&](float value) { return fast_exp(value - largest) * factor; };
  const auto store_gradient = [&](uint4 bits, int pack) {
    // By this name it is one access of 16 bytes; as an assignment the compiler makes four of it here.
    __stcs(reinterpret_cast<uint4*>(data.gradient + row.pack_at(pack)),
           ::gpulift::pack(each(to_gradient, unpack(bits))));
  };
  if constexpr (kHeld) {
#pragma unroll 4
    for (int pack = thread; pack < row.packs; pack += kThreads) store_gradient(held[pack], pack);
  } else {
    walk(row, data.logits, store_gradient, [](float) {});
  }
  if (thread < row.loose) {
    const std::size_t place = row.loose_at(thread);
    data.gradient[place] = __float2bfloat16_rn(to_gradient(__bfloat162float(data.logits[place])));
  }
  __syncthreads();  // the target's number is written again
  if (thread != 0) return;
  const std::size_t place = row.start + static_cast<std::size_t>(data.targets[blockIdx.x]);
  const float target = __bfloat162float(data.logits[place]);
  data.gradient[place] = __float2bfloat16_rn(to_gradient(target) - data.scale);
  data.losses[blockIdx.x] = (largest - target) + logf(sum);
}

__device__ double sum_of_warp(double value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, offset);
  return value;
}

/// A warp a row. Logits are so small that nothing overflows without subtracting their maximum.
__global__ void reference_kernel(CrossEntropy data, float* losses, float* gradient) {
  const std::size_t start = std::size_t{blockIdx.x} * static_cast<std::size_t>(data.classes);
  const auto lane = static_cast<int>(threadIdx.x);
  const auto logit = [&](int i) { return static_cast<double>(__bfloat162float(data.logits[start + i])); };
  double sum = 0;
  for (int i = lane; i < data.classes; i += kWarp) sum += exp(logit(i));
  sum = sum_of_warp(sum);
  const int target = data.targets[blockIdx.x];
  for (int i = lane; i < data.classes; i += kWarp) {
    const double one_hot = i == target ? 1 : 0;
    gradient[start + i] = static_cast<float>((exp(logit(i)) / sum - one_hot) * static_cast<double>(data.scale));
  }
  if (lane == 0) losses[blockIdx.x] = static_cast<float>(log(sum) - logit(target));
}

void require(const CrossEntropy& data) {
  if (data.classes < 1) throw std::invalid_argument("cross_entropy: there must be a class");
  require_aligned({data.logits, data.gradient});
}

unsigned grid_of(std::size_t rows) { return static_cast<unsigned>(rows); }

}  // namespace

std::size_t cross_entropy_held_bytes(int classes) {
  int device = 0;
  int most = 0;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  const std::size_t bytes = static_cast<std::size_t>(classes) / kPack * sizeof(uint4);
  constexpr std::size_t kReductions = 2 * sizeof(float) * (kThreads / kWarp);
  if (bytes + kReductions > static_cast<std::size_t>(most)) return 0;
  check(cudaFuncSetAttribute(fused_kernel<true>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  // So that a multiprocessor has room for two rows, of which one is read while the other is written.
  check(cudaFuncSetAttribute(fused_kernel<true>, cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared));
  return bytes;
}

void cross_entropy(const CrossEntropy& data, std::size_t held_bytes, cudaStream_t stream) {
  require(data);
  if (data.rows == 0) return;
  const auto kernel = held_bytes > 0 ? fused_kernel<true> : fused_kernel<false>;
  kernel<<<grid_of(data.rows), kThreads, held_bytes, stream>>>(data);
  check(cudaGetLastError());
}

void cross_entropy_reference(const CrossEntropy& data, float* losses, float* gradient, cudaStream_t stream) {
  require(data);
  if (data.rows == 0) return;
  reference_kernel<<<grid_of(data.rows), kWarp, 0, stream>>>(data, losses, gradient);
  check(cudaGetLastError());
}

}  // namespace gpulift
