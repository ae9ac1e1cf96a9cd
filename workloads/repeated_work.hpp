#pragma once
// Whether the same work gives the same bits every time.

#include <cstddef>
#include <cstdint>
#include <functional>

#include "core/cuda/buffer.hpp"
#include "core/harness/technique.hpp"
#include "kernels/verify.hpp"

namespace gpulift {

/// Work whose result lies in device memory.
struct RepeatedWork {
  Step step;
  std::function<void(StreamHandle)> poison;   // overwrites the result
  std::function<const void*()> result;        // where the latest step left it, aligned to 8 bytes
  std::size_t result_bytes = 0;               // the same for every step
  std::function<double(StreamHandle)> fault;  // of the latest result: 0 when it is right. May synchronise.
};

/// Compares the results of repeated work with its first one, every bit of them.
class RepeatCheck {
 public:
  /// Room for the first result of any work of up to `most_bytes`.
  RepeatCheck(Device& device, std::size_t most_bytes) : verifier_(device), first_(device, most_bytes) {}

  /// Call it after a first step: keeps that step's result, then poisons, steps and compares `repeats` times. The sum of
  /// all bytes that differ, plus the fault of the last result, without which a result that is wrong every time would
  /// pass. Waits for the stream. Throws std::invalid_argument for a result that is too large.
  double error(const RepeatedWork& work, std::int64_t repeats, StreamHandle stream) const;

 private:
  Verifier verifier_;
  DeviceBuffer<std::byte> first_;
};

}  // namespace gpulift
