#include "device_clock.hpp"

namespace gpulift {
namespace {

__device__ unsigned long long nanoseconds() {
  unsigned long long now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__device__ unsigned int multiprocessor() {
  unsigned int id = 0;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
  return id;
}

__global__ void hold_kernel(const volatile std::uint32_t* released, volatile std::uint32_t* timed_out,
                            unsigned long long limit_ns) {
  const unsigned long long start = nanoseconds();
  while (*released == 0) {
    if (nanoseconds() - start > limit_ns) {
      *timed_out = 1;
      break;
    }
  }
}

__global__ void clock_kernel(unsigned long long* time_ns, unsigned long long* cycles) {
  if (multiprocessor() != 0) return;
  *time_ns = nanoseconds();
  *cycles = static_cast<unsigned long long>(clock64());
}

__global__ void spin_kernel(long long cycles, unsigned long long* spun) {
  const long long start = clock64();
  long long passed = 0;
  while (passed < cycles) passed = clock64() - start;
  if (spun != nullptr) *spun = static_cast<unsigned long long>(passed);
}

void* pinned(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, bytes, cudaHostAllocMapped));
  return memory;
}

}  // namespace

Hold::Hold() : flags_(static_cast<Flags*>(pinned(sizeof(Flags))), [](void* flags) { return cudaFreeHost(flags); }) {}

void Hold::engage(cudaStream_t stream, double limit_s) {
  flags_->released = 0;
  flags_->timed_out = 0;
  hold_kernel<<<1, 1, 0, stream>>>(&flags_->released, &flags_->timed_out,
                                   static_cast<unsigned long long>(limit_s * 1e9));
  check(cudaGetLastError());
}

void Hold::release() { flags_->released = 1; }

bool Hold::timed_out() const { return flags_->timed_out != 0; }

SmClock::SmClock(int multiprocessors)
    : multiprocessors_(multiprocessors),
      samples_(static_cast<Sample*>(pinned(2 * sizeof(Sample))), [](void* samples) { return cudaFreeHost(samples); }) {
  samples_[0] = {};
  samples_[1] = {};
}

void SmClock::sample(cudaStream_t stream, int index) {
  Sample& sample = samples_[static_cast<std::size_t>(index)];
  sample = {};
  clock_kernel<<<static_cast<unsigned>(multiprocessors_), 1, 0, stream>>>(&sample.time_ns, &sample.cycles);
  check(cudaGetLastError());
}

std::optional<double> SmClock::mean_hz() const {
  const Sample& begin = samples_[0];
  const Sample& end = samples_[1];
  if (begin.time_ns == 0 || end.time_ns <= begin.time_ns || end.cycles <= begin.cycles) return std::nullopt;
  return static_cast<double>(end.cycles - begin.cycles) / static_cast<double>(end.time_ns - begin.time_ns) * 1e9;
}

void enqueue_spin(cudaStream_t stream, std::uint64_t cycles, unsigned long long* spun) {
  spin_kernel<<<1, 1, 0, stream>>>(static_cast<long long>(cycles), spun);
  check(cudaGetLastError());
}

}  // namespace gpulift
