#include "workloads/device_allocators.hpp"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <stdexcept>
#include <utility>

#include "core/cuda/check.hpp"
#include "core/cuda/handles.hpp"

namespace gpulift {
namespace {

class DeviceAllocators : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) GTEST_SKIP() << "no CUDA device";
    device_.emplace(0);
    stream_ = make_stream();
  }

  /// Small enough for any device, and still with all kinds of blocks.
  static AllocationTrace small_trace() {
    return gpt_training_trace({.layers = 2, .width = 64, .heads = 2, .sequence = 64, .batch = 2, .vocabulary = 256});
  }

  double errors_of(AllocationTrace trace, std::unique_ptr<DeviceAllocator> allocator) {
    TraceReplay replay(*device_, std::move(trace), std::move(allocator));
    replay.run(stream_.get());
    replay.watch();
    replay.run(stream_.get());
    return replay.errors();
  }

  std::optional<Device> device_;
  UniqueStream stream_;
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
  EXPECT_EQ(errors_of(small_trace(), make_malloc_allocator(*device_)), 0);
  EXPECT_EQ(errors_of(small_trace(), make_pool_allocator(*device_, 0)), 0);
  EXPECT_EQ(errors_of(small_trace(), make_pool_allocator(*device_, std::numeric_limits<std::uint64_t>::max())), 0);
  EXPECT_EQ(errors_of(small_trace(), make_arena_allocator(*device_, small_trace().total_bytes(kArenaAlignment))), 0);
}

TEST_F(DeviceAllocators, OverlapIsFound) {
  AllocationTrace trace;
  const std::size_t first = trace.allocate(256);
  const std::size_t second = trace.allocate(256);
  trace.free(first);
  trace.free(second);
  EXPECT_GT(errors_of(std::move(trace), std::make_unique<OverlappingAllocator>(*device_, 256)), 0);
}

TEST_F(DeviceAllocators, AStepThatDidNotRunIsFound) {
  TraceReplay replay(*device_, single_block_trace(1024), make_malloc_allocator(*device_));
  replay.watch();
  EXPECT_EQ(replay.errors(), 1);
}

TEST_F(DeviceAllocators, LedgerHoldsTheTracesPeakAndEndsEmpty) {
  TraceReplay replay(*device_, small_trace(), make_malloc_allocator(*device_));
  device_->memory().reset_peak();
  replay.run(stream_.get());
  EXPECT_EQ(device_->memory().peak_bytes(), small_trace().peak_bytes());
  EXPECT_EQ(device_->memory().live_bytes(), 0u);
}

TEST_F(DeviceAllocators, AnArenaTooSmallIsOutOfMemory) {
  TraceReplay replay(*device_, single_block_trace(2048), make_arena_allocator(*device_, 1024));
  EXPECT_THROW(replay.run(stream_.get()), OutOfMemory);
}

TEST_F(DeviceAllocators, AStepThatThrowsLeavesNoBlockBehind) {
  int live = 0;
  TraceReplay replay(*device_, small_trace(),
                     std::make_unique<FailingAllocator>(make_malloc_allocator(*device_), &live));
  EXPECT_THROW(replay.run(stream_.get()), OutOfMemory);
  EXPECT_EQ(live, 0);
}

TEST_F(DeviceAllocators, ATraceThatKeepsBlocksIsRefused) {
  AllocationTrace trace;
  trace.allocate(1);
  EXPECT_THROW(TraceReplay(*device_, trace, make_malloc_allocator(*device_)), std::logic_error);
}

}  // namespace
}  // namespace gpulift
