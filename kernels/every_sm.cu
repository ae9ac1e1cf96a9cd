#include <cub/block/block_reduce.cuh>

#include "core/cuda/check.hpp"
#include "kernels/every_sm.hpp"
#include "kernels/pattern.hpp"

namespace gpulift {
namespace {

constexpr int kThreads = 256;
constexpr int kWords = 4;  // of random bits per round, of FP32 chains, and of the tensor core's sums in one thread
constexpr int kWarp = 32;

/// A float of magnitude 0.5 to 1 with the sign and all fraction bits of the word.
__device__ float float_of(std::uint32_t bits) { return __uint_as_float((bits & 0x807FFFFFu) | 0x3F000000u); }

/// The same for both halves of the word as FP16.
__device__ std::uint32_t halves_of(std::uint32_t bits) { return (bits & 0x83FF83FFu) | 0x38003800u; }

/// One product of 16 x 8 by 8 x 8 elements of FP16 by the warp's tensor core, added to FP32 sums. Of the shapes that
/// exist, the one that every architecture since 7.5 has.
__device__ void multiply_add(float (&sums)[kWords], std::uint32_t a0, std::uint32_t a1, std::uint32_t b) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
               : "r"(a0), "r"(a1), "r"(b));
}

__device__ std::uint64_t bits_of(float high, float low) {
  return std::uint64_t{__float_as_uint(high)} << 32 | __float_as_uint(low);
}

__device__ unsigned multiprocessor_id() {
  unsigned id = 0;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
  return id;
}

/// The work of one thread. What a round computes decides the operands of the next. All values stay finite: factors are
/// below 1 and summands at most 1.
__device__ std::uint64_t thread_hash(std::uint64_t seed, int rounds) {
  std::uint64_t hash = random_bits(seed, threadIdx.x);
  float chains[kWords] = {};
  float sums[kWords] = {};
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t low = random_bits(hash, 0);
    const std::uint64_t high = random_bits(hash, 1);
    const std::uint32_t words[kWords] = {static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32),
                                         static_cast<std::uint32_t>(high), static_cast<std::uint32_t>(high >> 32)};
#pragma unroll
    for (int step = 0; step < kWords; ++step) {
#pragma unroll
      for (int chain = 0; chain < kWords; ++chain) {
        // Operands of its own, or all chains would soon hold the same value.
        const int word = (step + chain) % kWords;
        chains[chain] = fmaf(chains[chain], float_of(words[word]), float_of(words[(word + 1) % kWords]));
      }
      multiply_add(sums, halves_of(words[step]), halves_of(words[(step + 1) % kWords]),
                   halves_of(words[(step + 2) % kWords]));
    }
    hash = random_bits(hash ^ bits_of(chains[0], chains[1]), 0);
    hash = random_bits(hash ^ bits_of(chains[2], chains[3]), 0);
    hash = random_bits(hash ^ bits_of(sums[0], sums[1]), 0);
    hash = random_bits(hash ^ bits_of(sums[2], sums[3]), 0);
  }
  return hash;
}

__global__ __launch_bounds__(kThreads) void every_sm_kernel(std::uint64_t seed, int rounds, std::uint32_t* hashes,
                                                            std::uint32_t* visits) {
  using Reduce = cub::BlockReduce<std::uint32_t, kThreads>;
  __shared__ typename Reduce::TempStorage storage;
  const std::uint64_t hash = thread_hash(seed, rounds);
  // Integers: their sum is the same in any order.
  const std::uint32_t sum = Reduce(storage).Sum(static_cast<std::uint32_t>(hash ^ hash >> 32));
  if (threadIdx.x != 0) return;
  hashes[blockIdx.x] = sum;
  if (const unsigned id = multiprocessor_id(); id < kMultiprocessorIds) atomicAdd(&visits[id], 1u);
}

}  // namespace

void run_on_every_sm(std::uint64_t seed, int rounds, unsigned blocks, std::uint32_t* hashes, std::uint32_t* visits,
                     cudaStream_t stream) {
  every_sm_kernel<<<blocks, kThreads, 0, stream>>>(seed, rounds, hashes, visits);
  check(cudaGetLastError());
}

double every_sm_operations(int rounds) {
  // Per thread and round: 6 numbers of 9 integer operations (an addition, 2 multiplications, 3 shifts, 3 exclusive
  // ors), 16 multiply-adds, and a share in 4 products of 16 x 8 x 8 multiply-adds by 32 threads.
  constexpr double kPerThread = 6 * 9 + 16 * 2 + 4 * 2.0 * 16 * 8 * 8 / kWarp;
  return kPerThread * kThreads * rounds;
}

}  // namespace gpulift
