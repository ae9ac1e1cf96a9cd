#include <c10/util/StringUtil.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/harness/technique.hpp"
#include "workloads/torch/layout.hpp"
#include "workloads/torch/training_comparison.hpp"
#include "workloads/torch/workload.hpp"

namespace {

using gpulift::Precision;

std::int64_t batch_of(const std::string& model) {
  if (model == "mobilenet_small") return 32;
  return model == "resnet18" ? 64 : 128;
}

/// Of 20 steps. MobileNet's blocks do not begin as the identity: there FP32 in another layout is 1 % off already.
double tolerance_of(const std::string& model, Precision precision) {
  if (model.starts_with("mobilenet")) return 0.1;
  return precision == Precision::kTf32 ? 3e-3 : 0.01;
}

/// Of one step; which tensors torch copied is noted.
gpulift::Metrics conversions(gpulift::Trial& trial, const std::string& arm, gpulift::TrainingRun& training,
                             bool on_device) {
  const auto step = [&] { training.step(); };
  const std::vector<std::string> copies = gpulift::layout_copies(step);
  if (!copies.empty()) trial.note("layout_copies_of_" + arm, c10::Join(", ", copies));
  gpulift::Metrics metrics{{"layout_copies_per_step", static_cast<double>(copies.size())}};
  if (on_device) metrics["layout_kernels_per_step"] = static_cast<double>(gpulift::layout_kernels(step));
  return metrics;
}

void run(gpulift::Trial& trial) {
  const std::string model = trial.word("model");
  const Precision precision = gpulift::precision_named(trial.word("precision"));
  if (precision == Precision::kFp16 && !trial.has_device()) {
    trial.skip("FP16 convolutions need a GPU", "take precision:bf16, or a machine with a GPU");
  }
  gpulift::TrainingComparison comparison(trial, gpulift::make_workload(model, batch_of(model)));
  const bool on_device = comparison.session().on_device();
  if (!on_device && precision == Precision::kTf32) trial.note("computed_in", "fp32: TF32 is a format of GPUs");
  const auto arm = [&](const std::string& name, bool channels_last) {
    return comparison.arm(name, {.precision = precision, .channels_last = channels_last},
                          {.metrics = [&trial, name, on_device](gpulift::TrainingRun& training) {
                            return conversions(trial, name, training, on_device);
                          }});
  };
  comparison.compare({arm("contiguous", false), arm("channels_last", true)}, tolerance_of(model, precision));
}

gpulift::Point case_of(const std::string& model, const std::string& precision) {
  return {{"model", model}, {"precision", precision}};
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What does channels_last save in a training step, with and without mixed precision?",
    .expectation = R"(
        Tensor cores read NHWC. From NCHW, cuDNN converts inputs and outputs of most convolutions: each converted
        activation is read and written once more. ResNet-50, 128 images: in TF32 57.8 ms against 40.6, 1.42; in FP16
        42.3 against 21.7, 1.95; in BF16 48 against 27, 1.75 (half of what PyTorch took for 256 images on an H200, where
        that was known). MobileNet v2 lives on memory: 6.7 M outputs of convolutions an image, each moved some 20 times
        in a step, are 128 x 6.7 M x 20 x 4 bytes / 4.1 TB/s = 17 ms in TF32 and 8.4 ms in 16 bit. Two thirds of its
        convolutions are 1x1, of which NCHW converts both sides: 1.3 in 16 bit; 1.0 in TF32, where NHWC depthwise
        kernels are slow. ResNet-18 with 32 pixels is bound by launches: 1.1, for those of the conversions. With
        channels_last no conversion is left: 0 copies by torch, 0 kernels by cuDNN. On a CPU oneDNN works in blocks and
        converts from either layout: 1.0 for ResNet-18, 1.5 to 2 for MobileNet.)",
    .predict =
        {{.arm = "channels_last", .cases = case_of("resnet50", "tf32"), .on = "h200", .speedup = {{1.28, 1.56}}},
         {.arm = "channels_last", .cases = case_of("resnet50", "fp16"), .on = "h200", .speedup = {{1.75, 2.15}}},
         {.arm = "channels_last", .cases = case_of("resnet50", "bf16"), .on = "h200", .speedup = {{1.57, 1.93}}},
         {.arm = "channels_last", .cases = case_of("mobilenet", "tf32"), .on = "h200", .speedup = {{0.95, 1.05}}},
         {.arm = "channels_last", .cases = case_of("mobilenet", "fp16"), .on = "h200", .speedup = {{1.17, 1.43}}},
         {.arm = "channels_last", .cases = case_of("mobilenet", "bf16"), .on = "h200", .speedup = {{1.17, 1.43}}},
         {.arm = "channels_last", .cases = {{"model", "resnet18"}}, .on = "nvidia", .speedup = {{0.99, 1.21}}},
         {.arm = "channels_last", .cases = {{"model", "resnet18"}}, .on = "cpu", .speedup = {{0.95, 1.05}}},
         {.arm = "channels_last", .cases = {{"model", "mobilenet_small"}}, .on = "cpu", .speedup = {{1.5, 2}}}},
    .found = R"(
        channels_last brings MobileNet 2.2 to 2.8, since NCHW takes 50, 39 and 55 ms in TF32, FP16 and BF16. A profile
        of torchvision's model, in TF32: 15 ms are cuDNN's backward of batch norm, 9 of them for the 1.1 GB of the
        largest images, which is 1.4 ms for five passes at 4.1 TB/s; 16 ms are torch's depthwise kernels. In BF16 batch
        norm is torch's own, 32 ms. One conversion is left in TF32 and FP16: the pooled gradient comes contiguous,
        ReLU6's backward leaves it so where ReLU's would not, and cuDNN's batch norm, which torch does not take for
        BF16, needs the other layout: 128x1280x7x7, 64 MB = 16 us in TF32.)",
    .gpus = 0,
    .whole_steps = true,
    .arms = {"contiguous", "channels_last"},
    .l2 = gpulift::Cache::kBySize,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"model", {"resnet50", "mobilenet", "resnet18", "mobilenet_small"}},
              {"precision", {"tf32", "fp16", "bf16"}}},
    .quick = {},  // three launches of a case take half a minute
    .run = run,
};
