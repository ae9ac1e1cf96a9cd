#include "workloads/allocation_trace.hpp"

#include <algorithm>
#include <stdexcept>

namespace gpulift {
namespace {

constexpr std::size_t kBf16Bytes = 2;
constexpr std::size_t kFp32Bytes = 4;

/// What a transformer block keeps for its backward pass.
struct Saved {
  std::size_t input, norm1_statistics, norm1, qkv, attention, attention_statistics;
  std::size_t middle, norm2_statistics, norm2, hidden, activated;
};

/// Writes the trace of one step.
class GptStep {
 public:
  explicit GptStep(const GptSize& size)
      : size_(size),
        tokens_(size.batch * size.sequence),
        activation_(tokens_ * size.width * kBf16Bytes),
        norm_statistics_(tokens_ * 2 * kFp32Bytes),  // mean and reciprocal standard deviation
        attention_statistics_(size.batch * size.heads * size.sequence * kFp32Bytes) {}

  AllocationTrace run() {
    std::size_t residual = trace_.allocate(activation_);  // token plus position embedding
    for (std::size_t layer = 0; layer < size_.layers; ++layer) residual = forward(residual);
    std::size_t gradient = head(residual);
    for (; !saved_.empty(); saved_.pop_back()) gradient = backward(saved_.back(), gradient);
    embedding_gradient(gradient);
    for (const std::size_t block : gradients_) trace_.free(block);
    return std::move(trace_);
  }

 private:
  /// Returns the block's output; its input stays live, as the first thing that its backward pass needs.
  std::size_t forward(std::size_t input) {
    Saved saved{};
    saved.input = input;
    saved.norm1_statistics = trace_.allocate(norm_statistics_);
    saved.norm1 = trace_.allocate(activation_);
    saved.qkv = trace_.allocate(3 * activation_);
    saved.attention = trace_.allocate(activation_);
    saved.attention_statistics = trace_.allocate(attention_statistics_);
    saved.middle = add_projection();
    saved.norm2_statistics = trace_.allocate(norm_statistics_);
    saved.norm2 = trace_.allocate(activation_);
    saved.hidden = trace_.allocate(4 * activation_);
    saved.activated = trace_.allocate(4 * activation_);
    saved_.push_back(saved);
    return add_projection();
  }

  /// A linear layer's output, added to the residual stream, which makes a new tensor.
  std::size_t add_projection() {
    const std::size_t projected = trace_.allocate(activation_);
    const std::size_t sum = trace_.allocate(activation_);
    trace_.free(projected);
    return sum;
  }

  /// Last normalisation, logits, loss, and back to the gradient of the residual stream. The loss is computed in fp32.
  std::size_t head(std::size_t residual) {
    const std::size_t statistics = trace_.allocate(norm_statistics_);
    const std::size_t norm = trace_.allocate(activation_);
    const std::size_t logits = trace_.allocate(tokens_ * size_.vocabulary * kBf16Bytes);
    const std::size_t wide_logits = trace_.allocate(tokens_ * size_.vocabulary * kFp32Bytes);
    const std::size_t log_softmax = trace_.allocate(tokens_ * size_.vocabulary * kFp32Bytes);
    trace_.free(wide_logits);
    const std::size_t loss = trace_.allocate(kFp32Bytes);

    const std::size_t wide_gradient = trace_.allocate(tokens_ * size_.vocabulary * kFp32Bytes);
    trace_.free(log_softmax);
    const std::size_t logits_gradient = trace_.allocate(tokens_ * size_.vocabulary * kBf16Bytes);
    trace_.free(wide_gradient);
    const std::size_t norm_gradient = trace_.allocate(activation_);
    add_gradient(size_.vocabulary * size_.width);
    trace_.free(logits_gradient);
    trace_.free(norm);
    trace_.free(logits);
    trace_.free(loss);
    return norm_backward(norm_gradient, statistics, residual);
  }

  /// Takes the gradient of the block's output and returns that of its input.
  std::size_t backward(const Saved& saved, std::size_t gradient) {
    const std::size_t activated_gradient = linear_backward(size_.width, 4 * size_.width);
    trace_.free(saved.activated);
    const std::size_t hidden_gradient = trace_.allocate(4 * activation_);
    trace_.free(activated_gradient);
    trace_.free(saved.hidden);
    const std::size_t norm2_gradient = linear_backward(4 * size_.width, size_.width);
    trace_.free(hidden_gradient);
    trace_.free(saved.norm2);
    gradient = add(gradient, norm_backward(norm2_gradient, saved.norm2_statistics, saved.middle));

    const std::size_t attention_gradient = linear_backward(size_.width, size_.width);
    const std::size_t qkv_gradient = trace_.allocate(3 * activation_);
    const std::size_t row_sums = trace_.allocate(attention_statistics_);
    trace_.free(row_sums);
    trace_.free(attention_gradient);
    trace_.free(saved.attention_statistics);
    trace_.free(saved.attention);
    trace_.free(saved.qkv);
    const std::size_t norm1_gradient = linear_backward(3 * size_.width, size_.width);
    trace_.free(qkv_gradient);
    trace_.free(saved.norm1);
    return add(gradient, norm_backward(norm1_gradient, saved.norm1_statistics, saved.input));
  }

  /// Gradients of a linear layer's input, weight and bias; returns the first.
  std::size_t linear_backward(std::size_t outputs, std::size_t inputs) {
    const std::size_t input_gradient = trace_.allocate(tokens_ * inputs * kBf16Bytes);
    add_gradient(outputs * inputs);
    add_gradient(outputs);
    return input_gradient;
  }

  std::size_t norm_backward(std::size_t gradient, std::size_t statistics, std::size_t input) {
    const std::size_t input_gradient = trace_.allocate(activation_);
    add_gradient(size_.width);
    add_gradient(size_.width);
    trace_.free(gradient);
    trace_.free(statistics);
    trace_.free(input);
    return input_gradient;
  }

  std::size_t add(std::size_t first, std::size_t second) {
    const std::size_t sum = trace_.allocate(activation_);
    trace_.free(first);
    trace_.free(second);
    return sum;
  }

  /// The token embedding shares its weight with the head: its gradient is added to the head's and dropped.
  void embedding_gradient(std::size_t gradient) {
    add_gradient(size_.sequence * size_.width);
    const std::size_t tokens = trace_.allocate(size_.vocabulary * size_.width * kBf16Bytes);
    trace_.free(tokens);
    trace_.free(gradient);
  }

  void add_gradient(std::size_t weights) { gradients_.push_back(trace_.allocate(weights * kBf16Bytes)); }

  GptSize size_;
  std::size_t tokens_;
  std::size_t activation_;
  std::size_t norm_statistics_;
  std::size_t attention_statistics_;
  AllocationTrace trace_;
  std::vector<Saved> saved_;
  std::vector<std::size_t> gradients_;
};

}  // namespace

std::size_t AllocationTrace::allocate(std::size_t bytes) {
  if (bytes == 0) throw std::logic_error("a block of an allocation trace has at least one byte");
  const std::size_t block = block_bytes_.size();
  block_bytes_.push_back(bytes);
  live_.push_back(true);
  events_.push_back({AllocationEvent::Kind::kAllocate, block, bytes});
  ++live_blocks_;
  live_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, live_bytes_);
  return block;
}

void AllocationTrace::free(std::size_t block) {
  if (block >= live_.size() || !live_[block]) throw std::logic_error("a block is freed that is not live");
  live_[block] = false;
  events_.push_back({AllocationEvent::Kind::kFree, block, block_bytes_[block]});
  --live_blocks_;
  live_bytes_ -= block_bytes_[block];
}

std::size_t AllocationTrace::total_bytes(std::size_t granularity) const {
  std::size_t total = 0;
  for (const std::size_t bytes : block_bytes_) total += (bytes + granularity - 1) / granularity * granularity;
  return total;
}

AllocationTrace gpt_training_trace(const GptSize& size) { return GptStep(size).run(); }

AllocationTrace single_block_trace(std::size_t bytes) {
  AllocationTrace trace;
  trace.free(trace.allocate(bytes));
  return trace;
}

}  // namespace gpulift
