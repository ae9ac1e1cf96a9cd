#include "workloads/host/stream_ops.hpp"

#include <omp.h>
#include <sys/mman.h>

#include <cmath>
#include <limits>
#include <new>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace gpulift {
namespace {

constexpr double kScale = 3;
constexpr double kWritten = 7;
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
/// Eight doubles, a cache line; the compiler splits it into the registers that the processor has. Sums in several
/// registers are bound by memory and not by the latency of an addition.
constexpr std::size_t kLanes = 8;
using Line [[gnu::vector_size(kLanes * sizeof(double)), gnu::may_alias]] = double;

struct Part {
  std::size_t from;
  std::size_t to;
};

/// The calling thread's part of `count` elements, in whole lines.
Part own_part(std::size_t count) {
  const std::size_t lines = count / kLanes;
  const auto threads = static_cast<std::size_t>(omp_get_num_threads());
  const auto thread = static_cast<std::size_t>(omp_get_thread_num());
  return {lines * thread / threads * kLanes, lines * (thread + 1) / threads * kLanes};
}

const Line& line_at(const double* from) { return *reinterpret_cast<const Line*>(from); }

void store_past_caches(double* to, const Line& line) {
#if defined(__SSE2__)
  for (std::size_t i = 0; i < kLanes; i += 2) _mm_stream_pd(to + i, _mm_set_pd(line[i + 1], line[i]));
#else
  *reinterpret_cast<Line*>(to) = line;
#endif
}

/// Stores past the caches are weakly ordered: they must be done before the thread says that it is.
void finish_stores() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

/// Calls line(i) for the first element i of every line, on all threads.
template <typename PerLine>
void for_each_line(std::size_t count, PerLine per_line) {
#pragma omp parallel
  {
    const Part part = own_part(count);
    for (std::size_t i = part.from; i < part.to; i += kLanes) per_line(i);
    finish_stores();
  }
}

double sum_of(const double* data, std::size_t count) {
  double total = 0;
#pragma omp parallel reduction(+ : total)
  {
    const Part part = own_part(count);
    Line even{};
    Line odd{};
    std::size_t i = part.from;
    for (; i + 2 * kLanes <= part.to; i += 2 * kLanes) {
      even += line_at(data + i);
      odd += line_at(data + i + kLanes);
    }
    if (i < part.to) even += line_at(data + i);
    const Line both = even + odd;
    for (std::size_t lane = 0; lane < kLanes; ++lane) total += both[lane];
  }
  return total;
}

/// A whole number below 1024, so that 2^43 of them add up exactly in a double.
double value_at(std::uint64_t seed, std::size_t element) {
  constexpr std::uint64_t kMultiplier = 0x9E3779B97F4A7C15;  // of Fibonacci hashing
  return static_cast<double>(((element + seed) * kMultiplier) >> 54);
}

std::size_t arrays_of(StreamOp op) {
  if (op == StreamOp::kTriad) return 3;
  return op == StreamOp::kCopy ? 2 : 1;
}

}  // namespace

bool stores_bypass_caches() {
#if defined(__SSE2__)
  return true;
#else
  return false;
#endif
}

HostStream::HostStream(StreamOp op, std::size_t footprint_bytes, std::uint64_t seed)
    : op_(op), seed_(seed), count_(footprint_bytes / arrays_of(op) / sizeof(double) / kLanes * kLanes) {
  first_ = make_array(seed_);
  if (arrays_of(op_) > 1) second_ = make_array(seed_ + 1);
  if (arrays_of(op_) > 2) third_ = make_array(seed_ + 2);
}

HostStream::Array HostStream::make_array(std::uint64_t seed) const {
  const std::size_t bytes = (count_ * sizeof(double) + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  Array array(static_cast<double*>(std::aligned_alloc(kHugePageBytes, bytes)));
  if (!array) throw std::bad_alloc();
  madvise(array.get(), bytes, MADV_HUGEPAGE);  // advice: without it the loop is slower by its TLB misses, not wrong
  double* data = array.get();
  for_each_line(count_, [=](std::size_t i) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) data[i + lane] = value_at(seed, i + lane);
  });
  return array;
}

void HostStream::run() {
  double* first = first_.get();
  const double* second = second_.get();
  const double* third = third_.get();
  switch (op_) {
    case StreamOp::kRead:
      sum_ = sum_of(first, count_);
      break;
    case StreamOp::kWrite:
      for_each_line(count_, [=](std::size_t i) { store_past_caches(first + i, Line{} + kWritten); });
      break;
    case StreamOp::kCopy:
      for_each_line(count_, [=](std::size_t i) { store_past_caches(first + i, line_at(second + i)); });
      break;
    case StreamOp::kTriad:
      for_each_line(count_, [=](std::size_t i) {
        store_past_caches(first + i, line_at(second + i) + kScale * line_at(third + i));
      });
      break;
  }
}

double HostStream::traffic_bytes() const { return static_cast<double>(arrays_of(op_) * count_ * sizeof(double)); }

void HostStream::poison() {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  sum_ = kNaN;
  if (op_ == StreamOp::kRead) return;
  double* first = first_.get();
  for_each_line(count_, [=](std::size_t i) { store_past_caches(first + i, Line{} + kNaN); });
}

double HostStream::expected(std::size_t element) const {
  if (op_ == StreamOp::kRead) return value_at(seed_, element);
  if (op_ == StreamOp::kWrite) return kWritten;
  const double copied = value_at(seed_ + 1, element);
  return op_ == StreamOp::kCopy ? copied : copied + kScale * value_at(seed_ + 2, element);
}

double HostStream::wrong_elements() const {
  std::size_t right = 0;
#pragma omp parallel for reduction(+ : right)
  for (std::size_t i = 0; i < count_; ++i) right += first_[i] == expected(i) ? 1 : 0;
  return static_cast<double>(count_ - right);
}

double HostStream::error() const {
  if (op_ != StreamOp::kRead) return wrong_elements();
  double sum = 0;  // of whole numbers, exact in any order
#pragma omp parallel for reduction(+ : sum)
  for (std::size_t i = 0; i < count_; ++i) sum += expected(i);
  return std::abs(sum_ - sum);
}

}  // namespace gpulift
