// gpulift::torch compiles, links and runs, also on a machine with no GPU.
#include <gtest/gtest.h>
#include <torch/types.h>

namespace {

TEST(LibTorch, MultipliesOnTheHost) {
  const torch::Tensor left = torch::tensor({{1.0, 2.0}, {3.0, 4.0}});
  const torch::Tensor right = torch::tensor({{5.0, 6.0}, {7.0, 8.0}});
  EXPECT_TRUE(torch::equal(torch::matmul(left, right), torch::tensor({{19.0, 22.0}, {43.0, 50.0}})));
}

}  // namespace
