// What it is worth to time the library's plans, and what the search costs where it never ends.

#include <cmath>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/cuda/error.hpp"
#include "core/harness/technique.hpp"
#include "workloads/cudnn/convolution.hpp"
#include "workloads/matmul.hpp"

namespace {

using gpulift::ConvolutionPlan;
using gpulift::CudnnConvolution;
using gpulift::StreamHandle;

/// An arm whose convolution `ready` gives a plan. The one that was made last is the one that is checked.
gpulift::Arm make_arm(const std::string& name, std::weak_ptr<CudnnConvolution>& current,
                      const std::function<std::shared_ptr<CudnnConvolution>()>& make_convolution,
                      const std::function<void(CudnnConvolution&)>& ready) {
  return {.name = name, .make = [&current, make_convolution, ready]() -> gpulift::Step {
            auto convolution = make_convolution();
            ready(*convolution);
            current = convolution;
            return [convolution](StreamHandle stream) { convolution->enqueue(stream); };
          }};
}

/// As a loop does whose images change in size, and that searches at each new size: no search of the past helps.
gpulift::Arm searching_arm(std::weak_ptr<CudnnConvolution>& current,
                           const std::function<std::shared_ptr<CudnnConvolution>()>& make_convolution,
                           const std::vector<gpulift::ConvolutionShape>& shapes) {
  return {.name = "new_size",
          .make = [&current, make_convolution, shapes]() -> gpulift::Step {
            auto convolution = make_convolution();
            current = convolution;
            return [convolution, shapes, next = std::size_t{0}](StreamHandle stream) mutable {
              convolution->reshape(shapes[next++ % shapes.size()]);
              convolution->search();
              convolution->enqueue(stream);
            };
          },
          .clock = gpulift::Clock::kHost};
}

void run(gpulift::Trial& trial) {
  const std::string reason = gpulift::why_matmul_unsupported(gpulift::MatmulType::kBf16, trial.device().architecture());
  if (!reason.empty()) trial.skip(reason);
  trial.version("cudnn", gpulift::cudnn_version());
  const gpulift::ConvolutionTask task{.shape = gpulift::resnet50_layer(trial.word("layer")),
                                      .pass = gpulift::parse_convolution_pass(trial.word("pass"))};
  trial.cost({.flops = task.shape.flops(), .roof = "gemm/bf16"});
  const gpulift::CudnnLibrary library = gpulift::open_cudnn();
  const auto convolution = [&] {
    return std::make_shared<CudnnConvolution>(trial.device(), library, task, trial.seed());
  };
  const std::optional<std::string> known = trial.recall("search");
  const ConvolutionPlan plan = known ? gpulift::parse_convolution_plan(*known) : convolution()->search();
  trial.note("search", to_string(plan));

  std::weak_ptr<CudnnConvolution> current;
  trial.check({.meaning = "relative Frobenius error of 1024 elements against FP64 sums over the same operands",
               .poison = [&](StreamHandle stream) { current.lock()->poison(stream); },
               .error = [&](StreamHandle stream) { return current.lock()->error(stream); },
               .tolerance = gpulift::convolution_tolerance(task.type)});
  gpulift::Arm measured =
      make_arm("measured", current, convolution, [&](CudnnConvolution& made) { made.use(plan.name); });
  measured.metrics = [&](const gpulift::Step&, StreamHandle) {
    gpulift::Metrics metrics{{"search_s", plan.search_s}, {"timed_plans", static_cast<double>(plan.timed)}};
    if (std::isfinite(plan.break_even_steps())) metrics["break_even_steps"] = plan.break_even_steps();
    return metrics;
  };
  trial.compare({make_arm("heuristic", current, convolution, [](CudnnConvolution& made) { made.use_first(); }),
                 std::move(measured), searching_arm(current, convolution, gpulift::shapes_of_equal_work(task.shape))});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What is it worth to time all plans of a convolution, and how many steps does the search take to pay?",
    .expectation = R"(
        Layers of ResNet-50, 32 images, BF16, channels last. cuDNN's heuristic was trained on such layers: its first
        plan is within 10 % of the best of 10, so measured gains 1.00 to 1.10 forward, up to 1.2 for gradients of
        filters, whose split of a sum over 100,000 places it has to guess. Compiling and timing 10 plans takes 0.2 s
        (10 to 20 ms each), a step 10 to 25 us: 1 us saved pays after 200,000 steps of that layer. The control searches
        at each step, at images of the same number of pixels: 0.2 s against 15 us, 0.00008.)",
    .predict = {{.arm = "measured",
                 .cases = {{"pass", "forward"}, {"regime", "burst"}},
                 .on = "nvidia",
                 .speedup = {{1, 1.1}}},
                {.arm = "measured",
                 .cases = {{"pass", "filter_gradient"}, {"regime", "burst"}},
                 .on = "nvidia",
                 .speedup = {{1, 1.2}}},
                {.arm = "new_size", .cases = {{"regime", "burst"}}, .on = "nvidia", .speedup = {{0.000072, 0.000088}}}},
    .found = R"(
        new_size has 0.0005 to 0.0007 on an H100, whose records time 16 plans a search, and 0.0008 to 0.001 on an H200,
        of 10, in place of 0.00008: compiling and timing a plan takes 2 to 4 ms, not 10 to 20.)",
    .arms = {"heuristic", "measured", "new_size"},
    .controls = {"new_size"},
    .l2 = gpulift::Cache::kCold,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"layer", {"conv2_3x3", "conv2_expand", "conv4_3x3"}},
              {"pass", {"forward", "data_gradient", "filter_gradient"}},
              {"regime", {"burst", "sustained"}}},
    .quick = {{{"layer", "conv4_3x3"}, {"pass", "filter_gradient"}, {"regime", "burst"}}},
    .run = run,
};
