#include "layout.hpp"

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/types.h>

#include <string>
#include <vector>

#include "resnet.hpp"
#include "training.hpp"

namespace gpulift {
namespace {

constexpr auto kLast = torch::MemoryFormat::ChannelsLast;

TEST(Layout, CountsCopiesIntoTheOtherLayoutAndNoOthers) {
  const torch::Tensor first = torch::randn({2, 3, 4, 4});
  const torch::Tensor last = first.contiguous(kLast);
  const std::vector<std::string> one{"2x3x4x4"};
  const std::vector<std::string> none;
  EXPECT_EQ(layout_copies([&] { last.contiguous(); }), one);
  EXPECT_EQ(layout_copies([&] { first.contiguous(kLast); }), one);
  EXPECT_EQ(layout_copies([&] { first.clone().copy_(last); }), one);
  EXPECT_EQ(layout_copies([&] { first.contiguous(), last.contiguous(kLast); }), none);
  EXPECT_EQ(layout_copies([&] { last.to(torch::kBFloat16), last.clone(); }), none);
  const torch::Tensor pixels = torch::randn({2, 3, 1, 1});
  EXPECT_EQ(layout_copies([&] { pixels.clone().copy_(pixels.contiguous(kLast)); }), none);  // the same bytes
  EXPECT_EQ(layout_copies([&] { torch::randn({3, 4}).t().contiguous(); }), none);           // not 4-D
}

TEST(Layout, BothLayoutsTrainAlikeAndNoActivationChangesItsOwn) {
  const Workload workload =
      resnet_workload({.bottleneck = true, .blocks = {1, 1, 1, 1}, .pixels = 64, .classes = 10}, 4);
  TrainingRun first(workload, {}, torch::kCPU, 1);
  TrainingRun last(workload, {.channels_last = true}, torch::kCPU, 1);
  EXPECT_LT(largest_deviation(losses_of(last, 3), losses_of(first, 3)), 0.01);
  // On the host, gradients of weights come in oneDNN's order, and the optimizer copies them. Were activations
  // converted, each of the 17 convolutions would do so.
  for (TrainingRun* run : {&first, &last}) EXPECT_LT(layout_copies([&] { run->step(); }).size(), 17);
}

TEST(Layout, AWeightInTheOtherLayoutIsFound) {
  const torch::Tensor weight = torch::randn({8, 4, 3, 3}).contiguous(kLast).requires_grad_();
  const torch::Tensor image = torch::randn({2, 4, 8, 8});
  EXPECT_FALSE(layout_copies([&] { torch::conv2d(image, weight).sum().backward(); }).empty());
}

TEST(Layout, CudnnConvertsForTensorCoresUnlessChannelsAreLast) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const Workload workload = resnet50_workload(32);
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  std::int64_t kernels[2] = {};
  for (const bool channels_last : {false, true}) {
    TrainingRun run(workload, {.precision = Precision::kFp16, .channels_last = channels_last}, torch::kCUDA, 1);
    run.step();
    EXPECT_EQ(layout_copies([&] { run.step(); }), std::vector<std::string>()) << channels_last;
    torch::cuda::synchronize();
    kernels[channels_last ? 1 : 0] = layout_kernels([&] { run.step(); });
  }
  EXPECT_GT(kernels[0], 0);
  EXPECT_EQ(kernels[1], 0);
}

}  // namespace
}  // namespace gpulift
