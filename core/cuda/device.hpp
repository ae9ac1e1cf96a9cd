#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "handles.hpp"
#include "memory_ledger.hpp"

namespace gpulift {

/// Facts of the device in use, read once, and the ledger of what was allocated on it.
class Device {
 public:
  /// Selects the device for this process and creates its context.
  explicit Device(int index);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  int index() const { return index_; }
  const std::string& name() const { return name_; }
  /// Compute capability as 10 * major + minor, e.g. 90.
  int architecture() const { return architecture_; }
  int multiprocessors() const { return multiprocessors_; }
  std::size_t l2_bytes() const { return l2_bytes_; }
  std::size_t memory_bytes() const { return memory_bytes_; }
  /// Free bytes now, as the driver sees them.
  std::size_t free_bytes() const;

  /// Stream number `index` of a set that all arms of this process share, of two builds in a duet too. Streams of an
  /// arm's own would share the few queues of the hardware with those of other arms and be held up by them (seen: 16 %
  /// between two equal arms of eight streams each).
  cudaStream_t side_stream(std::size_t index);

  MemoryLedger& memory() { return memory_; }
  /// Pinned host memory.
  MemoryLedger& pinned_memory() { return pinned_memory_; }

 private:
  int index_;
  std::string name_;
  int architecture_ = 0;
  int multiprocessors_ = 0;
  std::size_t l2_bytes_ = 0;
  std::size_t memory_bytes_ = 0;
  std::vector<UniqueStream> side_streams_;
  MemoryLedger memory_;
  MemoryLedger pinned_memory_;
};

}  // namespace gpulift
