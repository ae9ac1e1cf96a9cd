#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "core/harness/window.hpp"
#include "workloads/torch/graph_arm.hpp"

namespace {

constexpr int kTimedParts = 10;

struct Model {
  std::int64_t batch_size;
  gpulift::Precision precision;
  bool channels_last;
  double tolerance;
};

const Model& model_named(const std::string& name) {
  using gpulift::Precision;
  // BF16 as precision/mixed; FP32 with the same formula in another order.
  static const std::map<std::string, Model> all{{"gpt2", {8, Precision::kBf16, false, 0.02}},
                                                {"gpt_small", {1, Precision::kBf16, false, 0.05}},
                                                {"resnet50", {64, Precision::kBf16, true, 0.01}},
                                                {"gpt_toy", {8, Precision::kFp32, false, 1e-3}},
                                                {"resnet18", {32, Precision::kFp32, false, 1e-3}}};
  return all.at(name);
}

/// Mean time of a part of a step, back to back, until the device has done it.
template <typename Part>
double time_s_of(const Part& part, bool on_device) {
  const auto wait = [&] {
    if (on_device) torch::cuda::synchronize();
  };
  part();
  wait();
  const double start_s = gpulift::now_s();
  for (int i = 0; i < kTimedParts; ++i) part();
  wait();
  return (gpulift::now_s() - start_s) / kTimedParts;
}

/// `update` is the optimizer's part, and uses the gradients that forward and backward left.
gpulift::Metrics share_of(gpulift::TrainingRun& run, const std::function<void()>& update, bool on_device) {
  const double rest_s = time_s_of([&] { run.forward_backward(); }, on_device);
  const double optimizer_s = time_s_of(update, on_device);
  return {{"forward_backward_time_s", rest_s},
          {"optimizer_time_s", optimizer_s},
          {"optimizer_share", optimizer_s / (optimizer_s + rest_s)}};
}

void run(gpulift::Trial& trial) {
  const std::string name = trial.word("model");
  const Model& model = model_named(name);
  if (name == "gpt_small" && !trial.has_device()) {
    trial.skip("the checks of a model with 67M parameters take minutes without a GPU",
               "run it on a machine with a GPU");
  }
  gpulift::TrainingComparison comparison(trial, gpulift::make_workload(name, model.batch_size));
  const bool on_device = comparison.session().on_device();
  const auto options_of = [&](gpulift::OptimizerForm form) {
    return gpulift::TrainingOptions{
        .precision = model.precision, .channels_last = model.channels_last, .optimizer = form};
  };
  const auto arm = [&](const std::string& arm_name, gpulift::OptimizerForm form) {
    gpulift::TrainingComparison::ArmOptions options;
    options.metrics = [on_device](gpulift::TrainingRun& training) {
      return share_of(training, [&] { training.update(); }, on_device);
    };
    return comparison.arm(arm_name, options_of(form), options);
  };
  const auto graph = [&] {
    if (!on_device) return gpulift::Arm{.name = "graph", .make = {}, .unavailable = "a host has no CUDA graphs"};
    gpulift::TrainingOptions options = options_of(gpulift::OptimizerForm::kFused);
    options.keep_gradients = true;
    const auto share = [](gpulift::TrainingRun& training, gpulift::StepGraph& update) {
      return share_of(training, [&] { update.replay(); }, true);
    };
    return comparison.arm(
        "graph", options,
        gpulift::graph_arm(comparison, options, gpulift::StepGraph::Part::kUpdate, trial.seed(), share));
  };
  comparison.compare({arm("loop", gpulift::OptimizerForm::kLoop), arm("foreach", gpulift::OptimizerForm::kForeach),
                      arm("fused", gpulift::OptimizerForm::kFused), graph()},
                     model.tolerance);
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What does a foreach or fused optimizer save of a whole training step?",
    .expectation = R"(
        gpt2, AdamW over 124M parameters in 148 tensors: the loop makes 8 passes that move 20 values per parameter, 10
        GB at 4.1 TB/s = 2.4 ms, by 1184 launches of 3 us = 3.6 ms: 3.6 ms alone; foreach 2.4 ms; fused moves 7 values,
        3.5 GB = 0.85 ms: 4.2 times the loop. Forward and backward are 36 ms and keep the device busy while the host is
        ahead, so that the loop's launches are partly hidden: steps of 39, 38.4 and 36.9 ms: fused 1.06, and a share of
        2 %. ResNet-50, batch 64, SGD over 26M parameters in 161 tensors: loop 644 launches of 3 us = 1.9 ms, foreach
        0.3 ms, fused 0.13 ms, of 14 ms: 1.13 at most, fused and foreach alike. gpt_small is bound by launches: 400 of
        850 launches are the loop's, 2.5 + 1.2 ms against 2.5 + 0.5 ms: 1.25. A graph of the fused update saves the
        launches of the some 10 kernels that fused is, 0.05 ms at most, and its gradients must stay where they are:
        zeroed and added to, 16 bytes per parameter that freed ones do not move: 2 GB = 0.5 ms of gpt2's 37, 0.1 of
        ResNet-50's 14, 0.26 of gpt_small's 3, predicted to be 0.99, 0.99 and 0.95 of fused. (That left out the adds
        themselves: a kernel of some 2 us per tensor, 147, 161 and 52 more launches: 0.98, 0.97 and 0.93.) On a host
        gpt_toy's tensors are small: the loop makes 8 calls of some us on each of 28, 0.5 of 10 ms: 1.04; resnet18's 11M
        parameters are bound by memory: 11 passes against 5 over 44 MB at 10 GB/s, 0.05 against 0.02 s of a step of 0.3
        s: 1.1.)",
    .claims = {"custom-kernels-faster"},
    .gpus = 0,
    .whole_steps = true,
    .arms = {"loop", "foreach", "fused", "graph"},
    .sweep = {{"model", {"gpt_toy", "resnet18", "gpt_small", "gpt2", "resnet50"}}},
    .quick = {{{"model", "gpt_toy"}}},
    .run = run,
};
