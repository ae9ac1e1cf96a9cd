#include "resnet.hpp"

#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <vector>

#include "images.hpp"
#include "training.hpp"

namespace gpulift {
namespace {

ResnetConfig tiny_config(bool bottleneck) {
  return {.bottleneck = bottleneck, .blocks = {1, 1, 1, 1}, .pixels = 64, .classes = 10};
}

std::int64_t parameters_of(Model& model) {
  std::int64_t count = 0;
  for (const torch::Tensor& parameter : model.parameters()) count += parameter.numel();
  return count;
}

TEST(Resnet, HasTorchvisionsParametersAndNames) {
  Resnet resnet50(resnet50_config());
  EXPECT_EQ(parameters_of(resnet50), 25557032);  // as torchvision documents
  EXPECT_EQ(resnet50.parameters().size(), 161);
  const auto shapes = resnet50.named_parameters();
  EXPECT_EQ(shapes["conv1.weight"].sizes(), (torch::IntArrayRef{64, 3, 7, 7}));
  EXPECT_EQ(shapes["bn1.weight"].sizes(), (torch::IntArrayRef{64}));
  EXPECT_EQ(shapes["layer1.0.downsample.0.weight"].sizes(), (torch::IntArrayRef{256, 64, 1, 1}));
  EXPECT_EQ(shapes["layer1.0.downsample.1.bias"].sizes(), (torch::IntArrayRef{256}));
  EXPECT_EQ(shapes["layer4.2.conv3.weight"].sizes(), (torch::IntArrayRef{2048, 512, 1, 1}));
  EXPECT_EQ(shapes["fc.weight"].sizes(), (torch::IntArrayRef{1000, 2048}));
  EXPECT_TRUE(resnet50.named_buffers().contains("layer3.5.bn2.running_var"));
  EXPECT_TRUE(resnet50.named_buffers().contains("bn1.num_batches_tracked"));

  Resnet resnet18(resnet18_config());
  EXPECT_EQ(parameters_of(resnet18), 11689512 - 990 * 513);  // as documented, with 10 classes instead of 1000
  EXPECT_FALSE(resnet18.named_parameters().contains("layer1.0.downsample.0.weight"));
  EXPECT_TRUE(resnet18.named_parameters().contains("layer2.0.downsample.0.weight"));
}

TEST(Resnet, CountsTheDocumentedProducts) {
  EXPECT_NEAR(resnet_products(resnet50_config()), 4.089e9, 0.001e9);
  ResnetConfig large18 = resnet18_config();
  large18.pixels = 224;
  large18.classes = 1000;
  EXPECT_NEAR(resnet_products(large18), 1.814e9, 0.001e9);
  // Of 8.18 GFLOP forward, the stem's 0.236 come twice in a step, all others three times.
  EXPECT_NEAR(resnet50_workload(2).flops, 2 * (3 * 8.178e9 - 0.236e9), 0.01e9);
  EXPECT_EQ(resnet50_workload(2).items, 2);
}

TEST(Resnet, StartsLikeTorchvisionsWhoseBlocksAreTheIdentity) {
  torch::manual_seed(1);
  Resnet model(resnet18_config());
  const torch::Tensor weight = model.named_parameters()["layer3.1.conv2.weight"];
  EXPECT_NEAR(weight.std().item<double>(), std::sqrt(2.0 / (256 * 9)), 0.0005);
  EXPECT_TRUE(model.named_parameters()["layer3.1.bn1.weight"].eq(1).all().item<bool>());
  EXPECT_TRUE(model.named_parameters()["layer3.1.bn2.weight"].eq(0).all().item<bool>());
  EXPECT_TRUE(model.named_parameters()["layer3.1.bn2.bias"].eq(0).all().item<bool>());
}

TEST(Resnet, TheStrideIsInTheThreeByThreeConvolution) {
  Resnet model(tiny_config(true));
  const auto modules = model.named_modules("", /*include_self=*/false);
  EXPECT_EQ(modules["layer2.0.conv1"]->as<torch::nn::Conv2dImpl>()->options.stride()->at(0), 1);
  EXPECT_EQ(modules["layer2.0.conv2"]->as<torch::nn::Conv2dImpl>()->options.stride()->at(0), 2);
}

TEST(Resnet, LearnsPatternsThatItHasNotSeen) {
  Workload workload = resnet_workload(tiny_config(false), 16);
  workload.make_batch = [] { return synthetic_patterns(16, 64, 10); };
  TrainingRun run(workload, {}, torch::kCPU, 1);
  const double untrained = std::log(10);
  double sum = 0;
  constexpr int kSteps = 40;
  constexpr int kLast = 10;
  for (int step = 0; step < kSteps; ++step) {
    run.use_batch(synthetic_patterns(16, 64, 10));
    run.step();
    if (step >= kSteps - kLast) sum += run.loss().item<double>();
  }
  EXPECT_LT(sum / kLast, untrained / 2);
}

TEST(Resnet, CheckpointingChangesNoGradient) {
  torch::manual_seed(1);
  Resnet model(tiny_config(true));
  const Batch batch = synthetic_images(2, 64, 10);
  model.loss(batch).backward();
  std::vector<torch::Tensor> expected;
  for (const torch::Tensor& parameter : model.parameters()) expected.push_back(parameter.grad().clone());
  for (const auto policy : {Checkpointing::kEveryBlock, Checkpointing::kSelective}) {
    model.zero_grad();
    model.use_checkpointing(policy);
    model.loss(batch).backward();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(torch::equal(model.parameters()[i].grad(), expected[i])) << i;
    }
  }
}

TEST(Resnet, LossesOnTheDeviceAreThoseOnTheHost) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const Workload workload = resnet_workload(tiny_config(true), 8);
  TrainingRun host(workload, {}, torch::kCPU, 1);
  const auto expected = losses_of(host, 5);
  TrainingRun device(workload, {}, torch::kCUDA, 1);
  EXPECT_LT(largest_deviation(losses_of(device, 5), expected), 1e-3);
}

}  // namespace
}  // namespace gpulift
