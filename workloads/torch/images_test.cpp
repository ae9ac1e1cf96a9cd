#include "images.hpp"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <tuple>
#include <vector>

namespace gpulift {
namespace {

TEST(Images, TheSameSeedGivesTheSameImagesAndClasses) {
  torch::manual_seed(1);
  const Batch first = synthetic_images(4, 8, 10);
  const Batch second = synthetic_images(4, 8, 10);
  torch::manual_seed(1);
  const Batch again = synthetic_images(4, 8, 10);
  EXPECT_TRUE(torch::equal(first.input, again.input));
  EXPECT_TRUE(torch::equal(first.target, again.target));
  EXPECT_FALSE(torch::equal(first.input, second.input));
}

TEST(Images, AreNormalAndHaveAllClasses) {
  torch::manual_seed(1);
  const Batch batch = synthetic_images(200, 8, 10);
  EXPECT_EQ(batch.input.sizes(), (torch::IntArrayRef{200, 3, 8, 8}));
  EXPECT_NEAR(batch.input.mean().item<double>(), 0, 0.03);
  EXPECT_NEAR(batch.input.std().item<double>(), 1, 0.03);
  EXPECT_EQ(std::get<0>(torch::_unique(batch.target)).numel(), 10);
}

TEST(Images, PatternsOfAClassAreAlikeAndThoseOfAnotherAreNot) {
  torch::manual_seed(1);
  const Batch batch = synthetic_patterns(400, 16, 4);
  std::vector<torch::Tensor> means;
  for (int c = 0; c < 4; ++c) means.push_back(batch.input.index({batch.target == c}).mean(0).flatten());
  for (std::size_t a = 0; a < means.size(); ++a) {
    EXPECT_GT(means[a].std().item<double>(), 1) << a;  // noise alone would leave a tenth
    for (std::size_t b = 0; b < a; ++b) {
      const double cosine = torch::cosine_similarity(means[a], means[b], 0).item<double>();
      EXPECT_LT(std::abs(cosine), 0.5) << a << " and " << b;
    }
  }
}

}  // namespace
}  // namespace gpulift
