#include "mlp.hpp"

#include <gtest/gtest.h>
#include <torch/utils.h>

namespace gpulift {
namespace {

TEST(Mlp, HasEightLayersOf4096AndCountsItsProducts) {
  const Workload workload = mlp_workload(2);
  const auto model = workload.make_model(torch::kCPU);
  std::int64_t parameters = 0;
  for (const torch::Tensor& parameter : model->parameters()) parameters += parameter.numel();
  EXPECT_EQ(parameters, 8 * (4096 * 4096 + 4096));
  EXPECT_EQ(model->named_parameters()[0].key(), "layers.0.weight");
  // Forward and by the weights: 8 products each; by the input: not of the first layer.
  EXPECT_EQ(workload.flops, 2.0 * 2 * 4096 * 4096 * (8 + 8 + 7));
  EXPECT_EQ(workload.items, 2);
  EXPECT_EQ(workload.item, "sample");
}

TEST(Mlp, GivesAScalarLossInFp32) {
  const Workload workload = mlp_workload(2);
  const torch::NoGradGuard no_grad;
  const Batch batch = workload.make_batch();
  const torch::Tensor loss = workload.make_model(torch::kCPU)->loss(batch);
  EXPECT_EQ(loss.dim(), 0);
  EXPECT_EQ(loss.scalar_type(), torch::kFloat32);
  EXPECT_GT(loss.item<double>(), 0.5) << "values of variance 1 that it does not know";
}

}  // namespace
}  // namespace gpulift
