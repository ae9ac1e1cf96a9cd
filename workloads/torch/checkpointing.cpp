#include "checkpointing.hpp"

#include <ATen/autocast_mode.h>
#include <torch/autograd.h>
#include <torch/utils.h>

#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace gpulift {
namespace {

using Block = std::function<torch::Tensor(const torch::Tensor&)>;

/// Sets autocast for as long as it lives, without its cache of cast weights: what the first run caches without a
/// gradient would be found by the second, and the weights would get none.
class AutocastWithoutCache {
 public:
  AutocastWithoutCache(torch::DeviceType device, bool enabled, torch::ScalarType dtype)
      : device_(device),
        was_enabled_(at::autocast::is_autocast_enabled(device)),
        was_dtype_(at::autocast::get_autocast_dtype(device)),
        had_cache_(at::autocast::is_autocast_cache_enabled()) {
    at::autocast::set_autocast_enabled(device, enabled);
    at::autocast::set_autocast_dtype(device, dtype);
    at::autocast::set_autocast_cache_enabled(false);
  }
  ~AutocastWithoutCache() {
    at::autocast::set_autocast_enabled(device_, was_enabled_);
    at::autocast::set_autocast_dtype(device_, was_dtype_);
    at::autocast::set_autocast_cache_enabled(had_cache_);
  }
  AutocastWithoutCache(const AutocastWithoutCache&) = delete;
  AutocastWithoutCache& operator=(const AutocastWithoutCache&) = delete;

 private:
  torch::DeviceType device_;
  bool was_enabled_;
  torch::ScalarType was_dtype_;
  bool had_cache_;
};

/// The states of the generators that work on a device may draw from: the host's, and the device's own.
class GeneratorStates {
 public:
  explicit GeneratorStates(torch::Device device) {
    keep(at::globalContext().defaultGenerator(torch::kCPU));
    if (device.is_cuda()) keep(at::globalContext().defaultGenerator(device));
  }
  void restore() const {
    for (const auto& [generator, state] : states_) {
      at::Generator restored = generator;
      const std::lock_guard<std::mutex> lock(restored.mutex());
      restored.set_state(state);
    }
  }

 private:
  void keep(at::Generator generator) {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    states_.emplace_back(generator, generator.get_state());
  }

  std::vector<std::pair<at::Generator, torch::Tensor>> states_;
};

/// What the second run needs beside the input.
struct Recomputation : torch::CustomClassHolder {
  Block block;
  bool autocast_enabled = false;
  torch::ScalarType autocast_dtype = torch::kFloat32;
  std::optional<GeneratorStates> generators;

  torch::Tensor run(const torch::Tensor& input) const {
    const AutocastWithoutCache autocast(input.device().type(), autocast_enabled, autocast_dtype);
    return block(input);
  }
};

class CheckpointFunction : public torch::autograd::Function<CheckpointFunction> {
 public:
  // Runs without gradients, as every forward of such a function does.
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& input,
                               const c10::intrusive_ptr<Recomputation>& recomputation) {
    context->save_for_backward({input});
    context->saved_data["recomputation"] = c10::IValue::make_capsule(recomputation);
    return recomputation->run(input);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto capsule = context->saved_data["recomputation"].toCapsule();
    const auto& recomputation = static_cast<const Recomputation&>(*capsule);
    const torch::Tensor input = context->get_saved_variables().front().detach().requires_grad_();
    torch::Tensor output;
    {
      const torch::AutoGradMode with_gradients(true);
      if (recomputation.generators) {
        const GeneratorStates now(input.device());
        recomputation.generators->restore();
        output = recomputation.run(input);
        now.restore();
      } else {
        output = recomputation.run(input);
      }
    }
    torch::autograd::backward({output}, {gradients.front()});
    return {input.grad(), torch::Tensor()};
  }
};

}  // namespace

bool recomputes(Checkpointing policy, std::int64_t block) {
  return policy == Checkpointing::kEveryBlock || (policy == Checkpointing::kSelective && block % 2 == 0);
}

torch::Tensor checkpoint(const Block& block, const torch::Tensor& input, Randomness randomness) {
  const torch::DeviceType device = input.device().type();
  auto recomputation = c10::make_intrusive<Recomputation>();
  recomputation->block = block;
  recomputation->autocast_enabled = at::autocast::is_autocast_enabled(device);
  recomputation->autocast_dtype = at::autocast::get_autocast_dtype(device);
  if (randomness == Randomness::kRepeated) recomputation->generators.emplace(input.device());
  return CheckpointFunction::apply(input, recomputation);
}

}  // namespace gpulift
