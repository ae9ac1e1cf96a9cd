#include "mobilenet.hpp"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "training.hpp"

namespace gpulift {
namespace {

TEST(Mobilenet, HasTorchvisionsParametersAndNames) {
  Mobilenet model;
  std::int64_t count = 0;
  for (const torch::Tensor& parameter : model.parameters()) count += parameter.numel();
  EXPECT_EQ(count, 3504872);  // as torchvision documents
  const auto shapes = model.named_parameters();
  EXPECT_EQ(shapes.size(), 158);
  EXPECT_EQ(shapes["features.0.0.weight"].sizes(), (torch::IntArrayRef{32, 3, 3, 3}));
  EXPECT_EQ(shapes["features.1.conv.1.weight"].sizes(), (torch::IntArrayRef{16, 32, 1, 1}));   // no expansion
  EXPECT_EQ(shapes["features.2.conv.1.0.weight"].sizes(), (torch::IntArrayRef{96, 1, 3, 3}));  // depthwise
  EXPECT_EQ(shapes["features.17.conv.3.bias"].sizes(), (torch::IntArrayRef{320}));
  EXPECT_EQ(shapes["features.18.0.weight"].sizes(), (torch::IntArrayRef{1280, 320, 1, 1}));
  EXPECT_EQ(shapes["classifier.1.weight"].sizes(), (torch::IntArrayRef{1000, 1280}));
  EXPECT_TRUE(model.named_buffers().contains("features.3.conv.0.1.running_mean"));
}

TEST(Mobilenet, CountsTheDocumentedProducts) {
  EXPECT_NEAR(mobilenet_products(224), 0.3008e9, 0.0005e9);
  EXPECT_NEAR(mobilenet_workload(1).flops, 2 * (3 * 0.3008e9 - 0.0108e9), 0.003e9);
}

TEST(Mobilenet, LearnsOneBatchByHeart) {
  TrainingRun run(mobilenet_small_workload(4), {}, torch::kCPU, 1);
  const auto losses = losses_of(run, 12);
  EXPECT_NEAR(losses.front(), 6.9, 0.3);  // ln 1000: it knows nothing
  EXPECT_LT(losses.back(), 5);
}

}  // namespace
}  // namespace gpulift
