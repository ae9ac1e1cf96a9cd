#include "workloads/device_allocators.hpp"

#include <limits>
#include <stdexcept>
#include <utility>

#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

class DeviceAllocators : public DeviceTest {
 protected:
  /// Small enough for any device, and still with all kinds of blocks.
  static AllocationTrace small_trace() {
    return gpt_training_trace({.layers = 2, .width = 64, .heads = 2, .sequence = 64, .batch = 2, .vocabulary = 256});
  }

  double errors_of(AllocationTrace trace, std::unique_ptr<DeviceAllocator> allocator) {
    TraceReplay replay(device(), std::move(trace), std::move(allocator));
    replay.run(stream());
    replay.watch();
    replay.run(stream());
    return replay.errors();
  }
};

/// Gives the same address to all blocks.
class OverlappingAllocator final : public DeviceAllocator {
 public:
  OverlappingAllocator(Device& device, std::size_t bytes) : block_(device, bytes) {}
  void* allocate(std::size_t, cudaStream_t) override { return block_.data(); }
  void free(void*, std::size_t, cudaStream_t) override {}

 private:
  DeviceBuffer<std::byte> block_;
};

/// Fails at the third allocation, and counts what is live.
class FailingAllocator final : public DeviceAllocator {
 public:
  FailingAllocator(std::unique_ptr<DeviceAllocator> under, int* live) : under_(std::move(under)), live_(live) {}
  void* allocate(std::size_t bytes, cudaStream_t stream) override {
    if (*live_ == 2) throw OutOfMemory("planned");
    void* block = under_->allocate(bytes, stream);
    ++*live_;
    return block;
  }
  void free(void* block, std::size_t bytes, cudaStream_t stream) override {
    under_->free(block, bytes, stream);
    --*live_;
  }

 private:
  std::unique_ptr<DeviceAllocator> under_;
  int* live_;
};

TEST_F(DeviceAllocators, AllKeepBlocksApart) {
  EXPECT_EQ(errors_of(small_trace(), make_malloc_allocator(device())), 0);
  EXPECT_EQ(errors_of(small_trace(), make_pool_allocator(device(), 0)), 0);
  EXPECT_EQ(errors_of(small_trace(), make_pool_allocator(device(), std::numeric_limits<std::uint64_t>::max())), 0);
  EXPECT_EQ(errors_of(small_trace(), make_arena_allocator(device(), small_trace().total_bytes(kArenaAlignment))), 0);
}

TEST_F(DeviceAllocators, OverlapIsFound) {
  AllocationTrace trace;
  const std::size_t first = trace.allocate(256);
  const std::size_t second = trace.allocate(256);
  trace.free(first);
  trace.free(second);
  EXPECT_GT(errors_of(std::move(trace), std::make_unique<OverlappingAllocator>(device(), 256)), 0);
}

TEST_F(DeviceAllocators, AStepThatDidNotRunIsFound) {
  TraceReplay replay(device(), single_block_trace(1024), make_malloc_allocator(device()));
  replay.watch();
  EXPECT_EQ(replay.errors(), 1);
}

TEST_F(DeviceAllocators, LedgerHoldsTheTracesPeakAndEndsEmpty) {
  TraceReplay replay(device(), small_trace(), make_malloc_allocator(device()));
  device().memory().reset_peak();
  replay.run(stream());
  EXPECT_EQ(device().memory().peak_bytes(), small_trace().peak_bytes());
  EXPECT_EQ(device().memory().live_bytes(), 0u);
}

TEST_F(DeviceAllocators, AnArenaTooSmallIsOutOfMemory) {
  TraceReplay replay(device(), single_block_trace(2048), make_arena_allocator(device(), 1024));
  EXPECT_THROW(replay.run(stream()), OutOfMemory);
}

TEST_F(DeviceAllocators, AStepThatThrowsLeavesNoBlockBehind) {
  int live = 0;
  TraceReplay replay(device(), small_trace(),
                     std::make_unique<FailingAllocator>(make_malloc_allocator(device()), &live));
  EXPECT_THROW(replay.run(stream()), OutOfMemory);
  EXPECT_EQ(live, 0);
}

TEST_F(DeviceAllocators, ATraceThatKeepsBlocksIsRefused) {
  AllocationTrace trace;
  trace.allocate(1);
  EXPECT_THROW(TraceReplay(device(), trace, make_malloc_allocator(device())), std::logic_error);
}

}  // namespace
}  // namespace gpulift
