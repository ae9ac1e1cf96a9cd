#pragma once
// Which blocks of memory a step takes and gives back, in order.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpulift {

struct AllocationEvent {
  enum class Kind { kAllocate, kFree };
  Kind kind = Kind::kAllocate;
  std::size_t block = 0;  // counts the allocations from 0
  std::size_t bytes = 0;
};

/// A sequence of allocations and frees that was built one call at a time.
class AllocationTrace {
 public:
  /// The new block's number. Throws std::logic_error for 0 bytes.
  std::size_t allocate(std::size_t bytes);
  /// Throws std::logic_error unless the block is live.
  void free(std::size_t block);

  const std::vector<AllocationEvent>& events() const { return events_; }
  /// How many allocations there are.
  std::size_t blocks() const { return block_bytes_.size(); }
  std::size_t live_blocks() const { return live_blocks_; }
  /// The most bytes that are live at a time: the least memory in which the trace can run.
  std::size_t peak_bytes() const { return peak_bytes_; }
  /// Of all blocks together, each rounded up to a multiple of `granularity`: what it takes never to use an address
  /// twice.
  std::size_t total_bytes(std::size_t granularity) const;

 private:
  std::vector<AllocationEvent> events_;
  std::vector<std::size_t> block_bytes_;
  std::vector<bool> live_;
  std::size_t live_blocks_ = 0;
  std::size_t live_bytes_ = 0;
  std::size_t peak_bytes_ = 0;
};

/// A GPT-2 model and its batch.
struct GptSize {
  std::size_t layers = 12;
  std::size_t width = 768;
  std::size_t heads = 12;
  std::size_t sequence = 1024;
  std::size_t batch = 8;
  std::size_t vocabulary = 50304;  // 50257 padded to a multiple of 128
};

/// Forward and backward pass of one training step in bf16 with fused attention, from loss to gradients. Not captured
/// from a program: derived from the shapes of the layers and from what each one must keep for its backward pass, in the
/// order in which an eager framework takes and drops them. Weights and optimizer state outlive a step and are not in
/// it; gradients live to the end of the step.
AllocationTrace gpt_training_trace(const GptSize& size);

/// One block, taken and given back.
AllocationTrace single_block_trace(std::size_t bytes);

}  // namespace gpulift
