#include "images.hpp"

#include <cmath>
#include <numbers>

namespace gpulift {
namespace {

constexpr std::int64_t kChannels = 3;

}  // namespace

Batch synthetic_images(std::int64_t batch_size, std::int64_t pixels, std::int64_t classes) {
  return {torch::randn({batch_size, kChannels, pixels, pixels}), torch::randint(classes, {batch_size}, torch::kInt64)};
}

Batch synthetic_patterns(std::int64_t batch_size, std::int64_t pixels, std::int64_t classes) {
  Batch batch = synthetic_images(batch_size, pixels, classes);
  const torch::Tensor angle = batch.target * (std::numbers::pi / static_cast<double>(classes));
  const torch::Tensor waves = 2 + batch.target % 3;  // in the width of the image
  const torch::Tensor place = torch::linspace(0, 2 * std::numbers::pi, pixels);
  const torch::Tensor across = (waves * angle.cos()).view({-1, 1, 1, 1}) * place.view({1, 1, 1, -1});
  const torch::Tensor down = (waves * angle.sin()).view({-1, 1, 1, 1}) * place.view({1, 1, -1, 1});
  batch.input = batch.input + 2 * (across + down).sin();
  return batch;
}

OptimizerRule image_rule() {
  return {.kind = OptimizerRule::Kind::kSgd, .learning_rate = 0.01, .weight_decay = 1e-4, .beta1 = 0.9};
}

}  // namespace gpulift
