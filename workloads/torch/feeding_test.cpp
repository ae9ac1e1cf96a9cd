#include "feeding.hpp"

#include <c10/cuda/CUDAGuard.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <memory>
#include <vector>

#include "core/cuda/handles.hpp"
#include "images.hpp"
#include "resnet.hpp"

namespace gpulift {
namespace {

Workload tiny_workload() {
  return resnet_workload({.bottleneck = false, .blocks = {1, 1, 1, 1}, .pixels = 64, .classes = 10}, 4);
}

TEST(Feeding, FingerprintsTellBatchesApart) {
  torch::manual_seed(1);
  const Batch batch = synthetic_images(4, 8, 10);
  const torch::Tensor print = fingerprint(batch);
  EXPECT_TRUE(torch::equal(fingerprint({batch.input.clone(), batch.target.clone()}), print));
  EXPECT_FALSE(torch::equal(fingerprint(synthetic_images(4, 8, 10)), print));
  Batch torn{batch.input.clone(), batch.target.clone()};
  torn.input[3] = torn.input[2];  // a copy that came half way
  EXPECT_FALSE(torch::equal(fingerprint(torn), print));
  torn = {batch.input, torch::tensor({1, 2, 3, 4}, torch::kInt64)};
  EXPECT_FALSE(torch::equal(fingerprint(torn), fingerprint({batch.input, torn.target.flip(0)})));
}

TEST(Feeding, EveryStepLearnsFromTheNextBatch) {
  FedRun run(tiny_workload(), {}, torch::kCPU, 1, Feed::kPageable);
  TrainingRun same(tiny_workload(), {}, torch::kCPU, 1);  // steps with one batch
  torch::manual_seed(2);
  std::vector<Batch> pool;
  for (std::size_t i = 0; i < FedRun::kPool; ++i) pool.push_back(tiny_workload().make_batch());
  for (std::size_t step = 0; step < FedRun::kPool + 2; ++step) {
    run.step();
    same.use_batch(pool[step % FedRun::kPool]);
    same.step();
    EXPECT_EQ(run.loss().item<double>(), same.loss().item<double>()) << step;
  }
  EXPECT_EQ(run.wrong_steps(), 0);
  EXPECT_EQ(run.copied_bytes(), 4 * (3 * 64 * 64 * 4 + 8));
}

/// Writes over the images that a step learns from.
class Spoiler : public Model {
 public:
  Spoiler() : scale_(register_parameter("scale", torch::ones({1}))) {}
  torch::Tensor forward(const Batch& batch) override { return batch.input * scale_; }
  torch::Tensor loss(const Batch& batch) override {
    const torch::Tensor value = forward(batch).mean();
    if (++steps_ == 3) torch::Tensor(batch.input).data().mul_(2);
    return value;
  }

 private:
  torch::Tensor scale_;
  int steps_ = 0;
};

TEST(Feeding, AStepWhoseBatchIsOverwrittenIsFound) {
  Workload workload = tiny_workload();
  workload.make_model = [](torch::Device /*device*/) { return std::make_shared<Spoiler>(); };
  FedRun run(workload, {}, torch::kCPU, 1, Feed::kPageable);
  for (int step = 0; step < 4; ++step) run.step();
  EXPECT_EQ(run.wrong_steps(), 1);
}

TEST(Feeding, AllFeedsGiveTheDeviceTheSameBatches) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const UniqueStream side = make_stream();
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  for (const Feed feed : {Feed::kPageable, Feed::kNonBlocking, Feed::kPrefetch}) {
    FedRun run(resnet50_workload(16), {.precision = Precision::kBf16, .channels_last = true},
               torch::Device(torch::kCUDA, 0), 1, feed, side.get());
    torch::cuda::synchronize();  // the slots were filled on another stream
    for (int step = 0; step < 9; ++step) run.step();
    EXPECT_EQ(run.wrong_steps(), 0) << static_cast<int>(feed);
    EXPECT_TRUE(std::isfinite(run.loss().item<double>()));
  }
}

}  // namespace
}  // namespace gpulift
