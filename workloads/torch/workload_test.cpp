#include "workload.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <string>

namespace gpulift {
namespace {

TEST(Workloads, AreFoundByTheirNamesAlone) {
  EXPECT_EQ(make_workload("mlp", 2).name, "mlp");
  EXPECT_THROW(make_workload("no_such_model", 2), std::invalid_argument);
}

TEST(Workloads, SayWhatAStepCostsInProportionToTheBatch) {
  for (const std::string& name : workload_names()) {
    const Workload one = make_workload(name, 2);
    const Workload two = make_workload(name, 4);
    EXPECT_GT(one.flops, 0) << name;
    EXPECT_GT(one.items, 0) << name;
    EXPECT_FALSE(one.item.empty()) << name;
    if (one.make_batches) continue;  // their lengths, and so their costs, are drawn
    EXPECT_EQ(two.flops, 2 * one.flops) << name;
    EXPECT_EQ(two.items, 2 * one.items) << name;
  }
}

TEST(RowsOfABatch, AreViewsOfInputTargetAndLengths) {
  const Batch batch{torch::arange(12).view({4, 3}), torch::arange(4), torch::arange(4) + 10};
  const Batch rows = rows_of(batch, 1, 2);
  EXPECT_TRUE(torch::equal(rows.input, batch.input.slice(0, 1, 3)));
  EXPECT_TRUE(torch::equal(rows.target, torch::tensor({1, 2}, torch::kInt64)));
  EXPECT_TRUE(torch::equal(rows.lengths, torch::tensor({11, 12}, torch::kInt64)));
  EXPECT_EQ(rows.input.data_ptr<std::int64_t>(), batch.input.data_ptr<std::int64_t>() + 3);
}

TEST(RowsOfABatch, HaveNoLengthsWhereTheBatchHasNone) {
  EXPECT_FALSE(rows_of({torch::ones({4, 3}), torch::ones({4})}, 0, 2).lengths.defined());
  EXPECT_FALSE(to_device({torch::ones({4, 3}), torch::ones({4})}, torch::kCPU).lengths.defined());
}

TEST(CrossEntropy, IsTheMeanOverRowsAndPositionsInFp32) {
  const torch::Tensor even = torch::zeros({2, 3, 5}, torch::kBFloat16);
  const torch::Tensor loss = cross_entropy(even.to(torch::kFloat32), torch::ones({2, 3}, torch::kInt64));
  EXPECT_EQ(loss.scalar_type(), torch::kFloat32);
  EXPECT_NEAR(loss.item<double>(), std::log(5.0), 1e-6);
}

TEST(CrossEntropy, LeavesOutTargetsOfMinus100) {
  const torch::Tensor logits = torch::tensor({{0.0, 0.0}, {50.0, 0.0}});
  const torch::Tensor target = torch::tensor({-100, 0}, torch::kInt64);
  EXPECT_NEAR(cross_entropy(logits, target).item<double>(), 0, 1e-6);
}

}  // namespace
}  // namespace gpulift
