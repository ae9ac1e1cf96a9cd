#include "workloads/device_allocators.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <iterator>
#include <memory_resource>
#include <new>
#include <utility>

#include "core/cuda/check.hpp"
#include "core/cuda/handles.hpp"

namespace gpulift {
namespace {

class MallocAllocator final : public DeviceAllocator {
 public:
  explicit MallocAllocator(Device& device) : ledger_(device.memory()) {}

  void* allocate(std::size_t bytes, cudaStream_t) override {
    void* block = nullptr;
    check(cudaMalloc(&block, bytes));
    ledger_.add(bytes);
    return block;
  }

  void free(void* block, std::size_t bytes, cudaStream_t) override {
    check(cudaFree(block));
    ledger_.remove(bytes);
  }

 private:
  MemoryLedger& ledger_;
};

using UniquePool = UniqueHandle<cudaMemPool_t, cudaMemPoolDestroy>;

UniquePool make_pool(const Device& device, std::uint64_t release_threshold_bytes) {
  int supported = 0;
  check(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, device.index()));
  if (supported == 0) throw NotSupported("this device and driver have no stream-ordered memory pools");
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, device.index()};
  cudaMemPool_t created = nullptr;
  check(cudaMemPoolCreate(&created, &properties));
  UniquePool pool(created);
  check(cudaMemPoolSetAttribute(created, cudaMemPoolAttrReleaseThreshold, &release_threshold_bytes));
  return pool;
}

class PoolAllocator final : public DeviceAllocator {
 public:
  PoolAllocator(Device& device, std::uint64_t release_threshold_bytes)
      : ledger_(device.memory()), pool_(make_pool(device, release_threshold_bytes)) {}

  void* allocate(std::size_t bytes, cudaStream_t stream) override {
    void* block = nullptr;
    check(cudaMallocFromPoolAsync(&block, bytes, pool_.get(), stream));
    ledger_.add(bytes);
    return block;
  }

  void free(void* block, std::size_t bytes, cudaStream_t stream) override {
    check(cudaFreeAsync(block, stream));
    ledger_.remove(bytes);
  }

 private:
  MemoryLedger& ledger_;
  UniquePool pool_;
};

/// The standard library's monotonic resource never touches the buffer that it hands out, so it may be device memory.
class ArenaAllocator final : public DeviceAllocator {
 public:
  ArenaAllocator(Device& device, std::size_t bytes)
      : block_(device, bytes), arena_(block_.data(), bytes, std::pmr::null_memory_resource()) {}

  void* allocate(std::size_t bytes, cudaStream_t) override {
    try {
      return arena_.allocate(bytes, kArenaAlignment);
    } catch (const std::bad_alloc&) {
      throw OutOfMemory("the arena of " + std::to_string(block_.bytes()) + " bytes is full");
    }
  }

  void free(void* block, std::size_t bytes, cudaStream_t) override { arena_.deallocate(block, bytes, kArenaAlignment); }

  void end_step() override { arena_.release(); }

 private:
  DeviceBuffer<std::byte> block_;
  std::pmr::monotonic_buffer_resource arena_;
};

}  // namespace

std::unique_ptr<DeviceAllocator> make_malloc_allocator(Device& device) {
  return std::make_unique<MallocAllocator>(device);
}

std::unique_ptr<DeviceAllocator> make_pool_allocator(Device& device, std::uint64_t release_threshold_bytes) {
  return std::make_unique<PoolAllocator>(device, release_threshold_bytes);
}

std::unique_ptr<DeviceAllocator> make_arena_allocator(Device& device, std::size_t bytes) {
  return std::make_unique<ArenaAllocator>(device, bytes);
}

TraceReplay::TraceReplay(Device& device, AllocationTrace trace, std::unique_ptr<DeviceAllocator> allocator)
    : trace_(std::move(trace)),
      allocator_(std::move(allocator)),
      blocks_(trace_.blocks()),
      written_(device, trace_.blocks()),
      read_first_(device, trace_.blocks()),
      read_last_(device, trace_.blocks()) {
  if (trace_.live_blocks() != 0) throw std::logic_error("a trace that is replayed must free all its blocks");
}

void TraceReplay::run(cudaStream_t stream) {
  try {
    replay(stream);
  } catch (...) {
    free_live_blocks(stream);
    throw;
  }
}

void TraceReplay::replay(cudaStream_t stream) {
  for (const AllocationEvent& event : trace_.events()) {
    if (event.kind == AllocationEvent::Kind::kAllocate) {
      blocks_[event.block] = allocator_->allocate(event.bytes, stream);
      if (watching_) watch_allocation(event.block, event.bytes, stream);
    } else {
      if (watching_) watch_free(event.block, event.bytes, stream);
      allocator_->free(std::exchange(blocks_[event.block], nullptr), event.bytes, stream);
    }
  }
  check(cudaStreamSynchronize(stream));
  allocator_->end_step();
  watching_ = false;
}

void TraceReplay::free_live_blocks(cudaStream_t stream) {
  for (const AllocationEvent& event : trace_.events()) {
    void*& block = blocks_[event.block];
    if (block == nullptr) continue;
    allocator_->free(std::exchange(block, nullptr), event.bytes, stream);
  }
  allocator_->end_step();
}

void TraceReplay::watch() {
  watching_ = true;
  overlaps_ = 0;
  live_.clear();
  for (std::size_t block = 0; block < trace_.blocks(); ++block) {
    written_.data()[block] = static_cast<std::uint8_t>(block % 255 + 1);
    read_first_.data()[block] = 0;
    read_last_.data()[block] = 0;
  }
}

double TraceReplay::errors() const {
  std::size_t wrong = 0;
  for (std::size_t block = 0; block < trace_.blocks(); ++block) {
    const std::uint8_t expected = written_.data()[block];
    if (read_first_.data()[block] != expected || read_last_.data()[block] != expected) ++wrong;
  }
  return static_cast<double>(wrong + overlaps_);
}

void TraceReplay::watch_allocation(std::size_t block, std::size_t bytes, cudaStream_t stream) {
  const auto address = reinterpret_cast<std::uintptr_t>(blocks_[block]);
  const auto next = live_.lower_bound(address);
  if (next != live_.end() && next->first < address + bytes) ++overlaps_;
  if (next != live_.begin() && std::prev(next)->second > address) ++overlaps_;
  live_[address] = address + bytes;
  auto* first = static_cast<std::uint8_t*>(blocks_[block]);
  check(cudaMemcpyAsync(first, &written_.data()[block], 1, cudaMemcpyHostToDevice, stream));
  check(cudaMemcpyAsync(first + bytes - 1, &written_.data()[block], 1, cudaMemcpyHostToDevice, stream));
}

void TraceReplay::watch_free(std::size_t block, std::size_t bytes, cudaStream_t stream) {
  live_.erase(reinterpret_cast<std::uintptr_t>(blocks_[block]));
  const auto* first = static_cast<const std::uint8_t*>(blocks_[block]);
  check(cudaMemcpyAsync(&read_first_.data()[block], first, 1, cudaMemcpyDeviceToHost, stream));
  check(cudaMemcpyAsync(&read_last_.data()[block], first + bytes - 1, 1, cudaMemcpyDeviceToHost, stream));
}

}  // namespace gpulift
