#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

namespace gpulift {

/// The loops of the STREAM benchmark (McCalpin, 1995) and its two halves.
enum class StreamOp {
  kRead,   // sum += a[i]
  kWrite,  // a[i] = s
  kCopy,   // b[i] = a[i]
  kTriad,  // a[i] = b[i] + s * c[i]
};

/// Whether the loops' stores do, in this build.
bool stores_bypass_caches();

/// One loop over arrays of doubles in host memory, on all OpenMP threads. Each thread touches first, and then always
/// works on, the same part of every array. Stores bypass the caches where the processor can (x86-64), so that a line is
/// not read before it is overwritten and the bytes that STREAM counts are the bytes that move.
class HostStream {
 public:
  /// `footprint_bytes` is shared out evenly to the arrays of the loop. Throws std::bad_alloc.
  HostStream(StreamOp op, std::size_t footprint_bytes, std::uint64_t seed);

  void run();

  /// Bytes that one run() moves as STREAM counts them: each element read or written once, 8 bytes each time.
  double traffic_bytes() const;

  /// Overwrites the result with NaN.
  void poison();
  /// After run(): how far the sum of kRead is off, or how many elements of the output are wrong. 0 when exact: the data
  /// are small whole numbers, whose sums do not depend on their order.
  double error() const;

 private:
  struct Free {
    void operator()(double* data) const { std::free(data); }
  };
  using Array = std::unique_ptr<double[], Free>;

  Array make_array(std::uint64_t seed) const;
  double wrong_elements() const;
  double expected(std::size_t element) const;

  StreamOp op_;
  std::uint64_t seed_;
  std::size_t count_;
  Array first_;
  Array second_;
  Array third_;
  double sum_ = 0;
};

}  // namespace gpulift
