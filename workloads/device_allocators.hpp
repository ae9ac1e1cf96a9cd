#pragma once
// Ways to take device memory within a step, behind one interface, and a step that replays an allocation trace on one.

#include <driver_types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "core/cuda/buffer.hpp"
#include "core/cuda/device.hpp"
#include "workloads/allocation_trace.hpp"

namespace gpulift {

/// Device memory for work in the order of one stream. What it holds is counted in the device's ledger.
class DeviceAllocator {
 public:
  virtual ~DeviceAllocator() = default;
  /// Throws OutOfMemory.
  virtual void* allocate(std::size_t bytes, cudaStream_t stream) = 0;
  virtual void free(void* block, std::size_t bytes, cudaStream_t stream) = 0;
  /// All blocks were freed.
  virtual void end_step() {}
};

/// cudaMalloc and cudaFree.
std::unique_ptr<DeviceAllocator> make_malloc_allocator(Device& device);

/// cudaMallocAsync and cudaFreeAsync on a memory pool of its own, which at a synchronisation gives memory beyond
/// `release_threshold_bytes` back to the system. Throws NotSupported where the driver has no pools.
std::unique_ptr<DeviceAllocator> make_pool_allocator(Device& device, std::uint64_t release_threshold_bytes);

/// One block of `bytes`, allocated now, in which a pointer moves up; nothing is reused before the step ends, so it
/// needs the sum of a step's blocks and not their peak. Blocks start at multiples of kArenaAlignment.
inline constexpr std::size_t kArenaAlignment = 512;
std::unique_ptr<DeviceAllocator> make_arena_allocator(Device& device, std::size_t bytes);

/// A step that takes and frees the blocks of a trace and then synchronises, as a loop does that reads its loss.
class TraceReplay {
 public:
  TraceReplay(Device& device, AllocationTrace trace, std::unique_ptr<DeviceAllocator> allocator);

  /// When it throws, the blocks that were live are free again.
  void run(cudaStream_t stream);

  /// The next step writes the number of each block to both its ends, and reads it back before the block is freed.
  void watch();
  /// Blocks of the watched step that shared memory with another live block or did not keep their number.
  double errors() const;

 private:
  void replay(cudaStream_t stream);
  void free_live_blocks(cudaStream_t stream);
  void watch_allocation(std::size_t block, std::size_t bytes, cudaStream_t stream);
  void watch_free(std::size_t block, std::size_t bytes, cudaStream_t stream);

  AllocationTrace trace_;
  std::unique_ptr<DeviceAllocator> allocator_;
  std::vector<void*> blocks_;  // null unless live
  bool watching_ = false;
  std::size_t overlaps_ = 0;
  std::map<std::uintptr_t, std::uintptr_t> live_;  // from address to end, while watching
  PinnedBuffer<std::uint8_t> written_;             // one byte per block
  PinnedBuffer<std::uint8_t> read_first_;
  PinnedBuffer<std::uint8_t> read_last_;
};

}  // namespace gpulift
