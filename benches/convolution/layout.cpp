// What the order of an image's elements in memory is worth: the same numbers, each layout with its fastest plan.

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
using gpulift::ConvolutionTask;
using gpulift::CudnnConvolution;
using gpulift::ImageLayout;
using gpulift::StreamHandle;

/// The plan that an earlier launch found, or the fastest that the library offers.
ConvolutionPlan plan_for(gpulift::Trial& trial, const gpulift::CudnnLibrary& library, const ConvolutionTask& task,
                         const std::string& layout) {
  const std::optional<std::string> known = trial.recall("plan/" + layout);
  const ConvolutionPlan plan = known ? gpulift::parse_convolution_plan(*known)
                                     : CudnnConvolution(trial.device(), library, task, trial.seed()).search();
  trial.note("plan/" + layout, to_string(plan));
  return plan;
}

gpulift::Arm make_arm(gpulift::Trial& trial, const gpulift::CudnnLibrary& library, const ConvolutionTask& task,
                      const std::string& layout, std::weak_ptr<CudnnConvolution>& current) {
  gpulift::Arm arm{.name = layout, .make = {}};
  try {
    const ConvolutionPlan plan = plan_for(trial, library, task, layout);
    arm.make = [&trial, &current, library, task, plan]() -> gpulift::Step {
      auto convolution = std::make_shared<CudnnConvolution>(trial.device(), library, task, trial.seed());
      convolution->use(plan.name);
      current = convolution;
      return [convolution](StreamHandle stream) { convolution->enqueue(stream); };
    };
  } catch (const gpulift::NotSupported& reason) {
    arm.unavailable = reason.what();
  }
  return arm;
}

void run(gpulift::Trial& trial) {
  const std::string type = trial.word("type");
  const std::string reason =
      gpulift::why_matmul_unsupported(gpulift::parse_matmul_type(type), trial.device().architecture());
  if (!reason.empty()) trial.skip(reason);
  trial.version("cudnn", gpulift::cudnn_version());
  ConvolutionTask task{.shape = gpulift::resnet50_layer(trial.word("layer")),
                       .pass = gpulift::parse_convolution_pass(trial.word("pass")),
                       .type = type == "fp16" ? gpulift::ElementType::kFp16 : gpulift::ElementType::kBf16};
  trial.cost({.flops = task.shape.flops(), .roof = "gemm/" + type});

  std::weak_ptr<CudnnConvolution> current;  // of the arm that was made last
  trial.check({.meaning = "relative Frobenius error of 1024 elements against FP64 sums over the same operands",
               .poison = [&](StreamHandle stream) { current.lock()->poison(stream); },
               .error = [&](StreamHandle stream) { return current.lock()->error(stream); },
               .tolerance = gpulift::convolution_tolerance(task.type)});
  const gpulift::CudnnLibrary library = gpulift::open_cudnn();
  std::vector<gpulift::Arm> arms;
  for (const ImageLayout layout : {ImageLayout::kNchw, ImageLayout::kNhwc}) {
    task.layout = layout;
    arms.push_back(make_arm(trial, library, task, layout == ImageLayout::kNchw ? "nchw" : "nhwc", current));
  }
  trial.compare(std::move(arms));
}

gpulift::Point burst_of(const std::string& layer) { return {{"layer", layer}, {"regime", "burst"}}; }

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What is it worth to a convolution that an image's channels lie together in memory?",
    .expectation = R"(
        Tensor Cores multiply along the channels. Where these lie apart, cuDNN transposes images and results, which
        reads and writes both once more. 3 x 3 layers of ResNet-50, 32 images: 7.4 GFLOP, 12 us at 600 TFLOP/s. conv2
        moves 26 MB, 9 us of its own at 3 TB/s, 12 us in all; transposed, 17 us and two launches more: 2.6. conv4 moves
        6 MB and conv5 3 MB, whose transposition takes 3 to 4 us each of at most 15: 1.5. conv2_expand, 1 x 1 to four
        times the channels, moves 64 MB in 21 us for 3.3 GFLOP: three times as many bytes, 3.0. Gradients of data as
        the forward pass; of filters one operand more to transpose and no large result: alike. FP16 as BF16.)",
    .predict = {{.arm = "nhwc", .cases = burst_of("conv2_3x3"), .on = "nvidia-h", .speedup = {{2.34, 2.86}}},
                {.arm = "nhwc", .cases = burst_of("conv2_expand"), .on = "nvidia-h", .speedup = {{2.7, 3.3}}},
                {.arm = "nhwc", .cases = burst_of("conv4_3x3"), .on = "nvidia-h", .speedup = {{1.35, 1.65}}},
                {.arm = "nhwc", .cases = burst_of("conv5_3x3"), .on = "nvidia-h", .speedup = {{1.35, 1.65}}}},
    .found = R"(
        In records of an H100 and an H200, of one launch or two. conv2_expand has 1.0 to 1.1 in place of 3.0: a 1 x 1
        convolution is a matrix product in either order, and the fastest plan for NCHW takes 27 us as that for NHWC does,
        64 MB at 2.4 TB/s. That it transposes nothing is inferred. conv5_3x3 has 2.1 to 2.3 in place of 1.5: 42 us
        against 19, where transposing 3 MB was to take 3 to 4 us; which kernels take the rest is not known.)",
    .arms = {"nchw", "nhwc"},
    .l2 = gpulift::Cache::kCold,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"layer", {"conv2_3x3", "conv2_expand", "conv4_3x3", "conv5_3x3"}},
              {"pass", {"forward", "data_gradient", "filter_gradient"}},
              {"type", {"bf16", "fp16"}},
              {"regime", {"burst", "sustained"}}},
    .quick = {{{"layer", "conv2_3x3"}, {"pass", "forward"}, {"type", "bf16"}, {"regime", "burst"}},
              {{"layer", "conv5_3x3"}, {"pass", "forward"}, {"type", "bf16"}, {"regime", "burst"}}},
    .run = run,
};
