#include "workloads/allocation_trace.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

namespace gpulift {
namespace {

TEST(AllocationTrace, CountsLiveAndPeak) {
  AllocationTrace trace;
  const std::size_t first = trace.allocate(100);
  const std::size_t second = trace.allocate(50);
  trace.free(first);
  trace.allocate(20);
  EXPECT_EQ(trace.peak_bytes(), 150u);
  EXPECT_EQ(trace.live_blocks(), 2u);
  EXPECT_EQ(trace.blocks(), 3u);
  EXPECT_EQ(trace.total_bytes(1), 170u);
  EXPECT_EQ(trace.total_bytes(64), 128u + 64u + 64u);
  trace.free(second);
  EXPECT_EQ(trace.events().back().kind, AllocationEvent::Kind::kFree);
  EXPECT_EQ(trace.events().back().bytes, 50u);
}

TEST(AllocationTrace, RefusesWhatNoProgramMayDo) {
  AllocationTrace trace;
  EXPECT_THROW(trace.allocate(0), std::logic_error);
  EXPECT_THROW(trace.free(0), std::logic_error);
  const std::size_t block = trace.allocate(1);
  trace.free(block);
  EXPECT_THROW(trace.free(block), std::logic_error);
}

TEST(AllocationTrace, SingleBlockEndsAsItBegan) {
  const AllocationTrace trace = single_block_trace(1 << 20);
  EXPECT_EQ(trace.blocks(), 1u);
  EXPECT_EQ(trace.live_blocks(), 0u);
  EXPECT_EQ(trace.peak_bytes(), std::size_t{1} << 20);
}

// One layer, 4 tokens of width 2: an activation has 4 x 2 x 2 = 16 bytes, the statistics of a normalisation 4 x 2 x 4 =
// 32, those of attention 1 x 1 x 4 x 4 = 16, the logits 4 x 8 x 2 = 64 and in fp32 128. The most is live when the loss
// has made its gradient: 16 activations, two statistics of normalisations and one of attention for the layer (336), the
// stream after it (16), the last normalisation (32 + 16), logits (64), log-softmax and its gradient (256), loss (4).
TEST(GptTrainingTrace, PeakOfATinyModelByHand) {
  const AllocationTrace trace =
      gpt_training_trace({.layers = 1, .width = 2, .heads = 1, .sequence = 4, .batch = 1, .vocabulary = 8});
  EXPECT_EQ(trace.peak_bytes(), 336u + 16u + 48u + 64u + 256u + 4u);
}

// The same arithmetic for 12 layers and an activation of 8 x 1024 x 768 x 2 = 12582912 bytes.
TEST(GptTrainingTrace, PeakOfGpt2ByHand) {
  const std::size_t activation = 12582912;
  const std::size_t layer = 16 * activation + 2 * 65536 + 393216;
  const std::size_t logits = 8192ul * 50304 * 2;
  const AllocationTrace trace = gpt_training_trace({});
  EXPECT_EQ(trace.peak_bytes(), 12 * layer + activation + (65536 + activation) + logits + 2 * (2 * logits) + 4);
  EXPECT_LT(trace.peak_bytes(), std::size_t{20} << 30);
}

TEST(GptTrainingTrace, EndsAsItBegan) { EXPECT_EQ(gpt_training_trace({}).live_blocks(), 0u); }

// A layer adds to forward: statistics, norm, qkv, attention, statistics, projection, sum, statistics, norm, hidden,
// activated, projection, sum = 13; to backward: 4 linear layers of 3, 2 normalisations of 3, 2 sums, the gradients of
// the activation function and of qkv, and attention's row sums = 23.
TEST(GptTrainingTrace, BlocksPerLayerByHand) {
  const std::size_t one = gpt_training_trace({.layers = 1}).blocks();
  const std::size_t two = gpt_training_trace({.layers = 2}).blocks();
  EXPECT_EQ(two - one, 13u + 23u);
}

// All weights have a gradient when the step ends: GPT-2 124M with the padded vocabulary has 124475904 of them. They are
// freed last, after all else.
TEST(GptTrainingTrace, GradientsOfAllWeightsLiveToTheEnd) {
  const AllocationTrace trace = gpt_training_trace({});
  const auto& events = trace.events();
  std::size_t gradient_bytes = 0;
  for (auto event = events.rbegin(); event->kind == AllocationEvent::Kind::kFree; ++event) {
    gradient_bytes += event->bytes;
  }
  const std::size_t layer_weights = 12 * 768 * 768 + 13 * 768;
  const std::size_t weights = 12 * layer_weights + 50304ul * 768 + 1024 * 768 + 2 * 768;
  const std::size_t last_stream_gradient = 12582912;
  const std::size_t token_gradient = 50304ul * 768 * 2;
  EXPECT_EQ(weights, 124475904u);
  EXPECT_EQ(gradient_bytes, 2 * weights + last_stream_gradient + token_gradient);
}

TEST(GptTrainingTrace, IsTheSameEachTime) {
  const AllocationTrace first = gpt_training_trace({});
  const AllocationTrace second = gpt_training_trace({});
  EXPECT_TRUE(std::ranges::equal(first.events(), second.events(), [](const auto& a, const auto& b) {
    return a.kind == b.kind && a.block == b.block && a.bytes == b.bytes;
  }));
}

}  // namespace
}  // namespace gpulift
