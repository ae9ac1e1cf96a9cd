#include "resnet.hpp"

#include <string>
#include <vector>

#include "convolution.hpp"
#include "images.hpp"

namespace gpulift {
namespace {

constexpr Convolution kStem{.in = 3, .out = 64, .kernel = 7, .stride = 2};

/// What one block is made of.
struct BlockPlan {
  std::vector<Convolution> convolutions;
  std::vector<Convolution> shortcut;  // one where the shape changes, else none

  double products(std::int64_t width) const {
    double sum = 0;
    for (const Convolution& convolution : shortcut) sum += convolution.products(width);
    for (const Convolution& convolution : convolutions) {
      sum += convolution.products(width);
      width = convolution.width(width);
    }
    return sum;
  }
};

BlockPlan plan_block(bool bottleneck, std::int64_t in, std::int64_t planes, std::int64_t stride) {
  const std::int64_t out = bottleneck ? 4 * planes : planes;
  BlockPlan plan;
  if (bottleneck) {
    plan.convolutions = {{.in = in, .out = planes},
                         {.in = planes, .out = planes, .kernel = 3, .stride = stride},
                         {.in = planes, .out = out}};
  } else {
    plan.convolutions = {{.in = in, .out = planes, .kernel = 3, .stride = stride},
                         {.in = planes, .out = planes, .kernel = 3}};
  }
  if (stride != 1 || in != out) plan.shortcut = {{.in = in, .out = out, .stride = stride}};
  return plan;
}

/// The blocks of the four stages, in order.
std::array<std::vector<BlockPlan>, 4> plan_stages(const ResnetConfig& config) {
  std::array<std::vector<BlockPlan>, 4> stages;
  std::int64_t in = kStem.out;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const std::int64_t planes = kStem.out << stage;
    for (std::int64_t block = 0; block < config.blocks[stage]; ++block) {
      stages[stage].push_back(plan_block(config.bottleneck, in, planes, stage > 0 && block == 0 ? 2 : 1));
      in = stages[stage].back().convolutions.back().out;
    }
  }
  return stages;
}

std::int64_t features_of(const ResnetConfig& config) { return config.bottleneck ? 2048 : 512; }

}  // namespace

/// A sum of its input and what some convolutions make of it.
class Resnet::Block : public torch::nn::Module {
 public:
  explicit Block(const BlockPlan& plan) {
    for (std::size_t i = 0; i < plan.convolutions.size(); ++i) {
      const std::string number = std::to_string(i + 1);
      convolutions_.push_back(register_module("conv" + number, plan.convolutions[i].layer()));
      norms_.push_back(register_module("bn" + number, torch::nn::BatchNorm2d(plan.convolutions[i].out)));
    }
    // Each block begins as the identity (P. Goyal et al., arXiv:1706.02677, 5.1). Beginning at 1, 16 such sums make the
    // gradient so steep that steps of FP32 and BF16 part at once; these stay within 0.2 % over 12 steps.
    torch::nn::init::zeros_(norms_.back()->weight);
    if (plan.shortcut.empty()) return;
    shortcut_ = torch::nn::Sequential(plan.shortcut[0].layer(), torch::nn::BatchNorm2d(plan.shortcut[0].out));
    register_module("downsample", shortcut_);
  }

  torch::Tensor forward(const torch::Tensor& input) {
    torch::Tensor residual = input;
    for (std::size_t i = 0; i < convolutions_.size(); ++i) {
      if (i > 0) residual.relu_();
      residual = norms_[i]->forward(convolutions_[i]->forward(residual));
    }
    residual += shortcut_.is_empty() ? input : shortcut_->forward(input);
    return residual.relu_();
  }

 private:
  std::vector<torch::nn::Conv2d> convolutions_;
  std::vector<torch::nn::BatchNorm2d> norms_;
  torch::nn::Sequential shortcut_ = nullptr;
};

Resnet::Resnet(const ResnetConfig& config)
    : conv1_(register_module("conv1", kStem.layer())), bn1_(kStem.out), fc_(features_of(config), config.classes) {
  register_module("bn1", bn1_);
  const auto stages = plan_stages(config);
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    for (const BlockPlan& plan : stages[stage]) layers_[stage]->push_back(std::make_shared<Block>(plan));
    register_module("layer" + std::to_string(stage + 1), layers_[stage]);
  }
  register_module("fc", fc_);
}

torch::Tensor Resnet::forward(const Batch& batch) {
  torch::Tensor image = bn1_->forward(conv1_->forward(batch.input)).relu_();
  image = torch::max_pool2d(image, /*kernel_size=*/3, /*stride=*/2, /*padding=*/1);
  std::int64_t index = 0;
  for (const torch::nn::ModuleList& layer : layers_) {
    for (const auto& module : *layer) {
      Block& block = *module->as<Block>();
      const auto run = [&block](const torch::Tensor& input) { return block.forward(input); };
      image = recomputes(checkpointing_, index++) ? checkpoint(run, image, Randomness::kNone) : run(image);
    }
  }
  return fc_->forward(torch::adaptive_avg_pool2d(image, {1, 1}).flatten(1));
}

torch::Tensor Resnet::loss(const Batch& batch) {
  return cross_entropy(forward(batch).to(torch::kFloat32), batch.target);
}

ResnetConfig resnet50_config() { return {.bottleneck = true, .blocks = {3, 4, 6, 3}, .pixels = 224, .classes = 1000}; }

ResnetConfig resnet18_config() { return {.bottleneck = false, .blocks = {2, 2, 2, 2}, .pixels = 32, .classes = 10}; }

double resnet_products(const ResnetConfig& config) {
  double sum = kStem.products(config.pixels);
  std::int64_t width = (kStem.width(config.pixels) - 1) / 2 + 1;  // pooled
  for (const auto& stage : plan_stages(config)) {
    for (const BlockPlan& plan : stage) {
      sum += plan.products(width);
      for (const Convolution& convolution : plan.convolutions) width = convolution.width(width);
    }
  }
  return sum + static_cast<double>(features_of(config) * config.classes);
}

Workload resnet_workload(const ResnetConfig& config, std::int64_t batch_size) {
  Workload workload;
  workload.make_model = [config](torch::Device /*device*/) { return std::make_shared<Resnet>(config); };
  workload.make_batch = [config, batch_size] { return synthetic_images(batch_size, config.pixels, config.classes); };
  workload.flops = training_flops(resnet_products(config), kStem.products(config.pixels), batch_size);
  workload.items = static_cast<double>(batch_size);
  workload.item = "image";
  workload.rule = image_rule();
  return workload;
}

Workload resnet50_workload(std::int64_t batch_size) { return resnet_workload(resnet50_config(), batch_size); }
Workload resnet18_workload(std::int64_t batch_size) { return resnet_workload(resnet18_config(), batch_size); }

}  // namespace gpulift
