#pragma once

#include <algorithm>
#include <cstddef>

namespace gpulift {

/// Counts the bytes that the RAII buffers of one process hold, and the most they ever held since the last reset.
/// Used by one thread.
class MemoryLedger {
 public:
  void add(std::size_t bytes) {
    live_bytes_ += bytes;
    peak_bytes_ = std::max(peak_bytes_, live_bytes_);
  }
  void remove(std::size_t bytes) { live_bytes_ -= bytes; }
  void reset_peak() { peak_bytes_ = live_bytes_; }
  std::size_t live_bytes() const { return live_bytes_; }
  std::size_t peak_bytes() const { return peak_bytes_; }

 private:
  std::size_t live_bytes_ = 0;
  std::size_t peak_bytes_ = 0;
};

}  // namespace gpulift
