#include "kernels/layer_norm.hpp"

#include <cstdint>
#include <memory>
#include <string>

#include "core/cuda/buffer.hpp"
#include "core/cuda/device.hpp"
#include "core/harness/technique.hpp"
#include "workloads/memory_roof.hpp"
#include "workloads/norm_case.hpp"

namespace {

using gpulift::NormCase;
using gpulift::NormTensors;
using gpulift::StreamHandle;
using Matrix = gpulift::DeviceBuffer<__nv_bfloat16>;

constexpr int kColumns = 768;  // of GPT-2 124M

gpulift::Step by_operations(const NormCase& rows) {
  const auto matrices = std::make_shared<Matrix>(rows.device(), (rows.forward() ? 1 : 3) * rows.count());
  const auto means = std::make_shared<gpulift::DeviceBuffer<float>>(rows.device(), 2 * rows.shape().rows);
  gpulift::NormSteps steps{.normalised = matrices->data(), .row_means = means->data()};
  if (!rows.forward()) {
    steps.scaled_gradient = matrices->data() + rows.count();
    steps.norm_gradient = matrices->data() + 2 * rows.count();
    rows.normalise(steps.normalised);
  }
  return [&rows, matrices, means, steps](StreamHandle stream) {
    if (rows.forward()) {
      norm_forward_by_operations(rows.shape(), rows.tensors(), steps, stream);
    } else {
      norm_backward_by_operations(rows.shape(), rows.tensors(), steps, rows.device().multiprocessors(), stream);
    }
  };
}

/// A kernel for the addition and one for the normalisation, as frameworks have them.
gpulift::Step norm_kernel(const NormCase& rows) {
  NormTensors norm = rows.tensors();
  if (rows.forward()) {
    norm.input = norm.residual = nullptr;
    return [&rows, norm, all = rows.tensors()](StreamHandle stream) {
      gpulift::residual_add(all.input, all.residual, all.sum, rows.count(), stream);
      norm_forward(rows.shape(), norm, stream);
    };
  }
  const auto gradient = std::make_shared<Matrix>(rows.device(), rows.count());
  norm.skip_gradient = nullptr;
  norm.sum_gradient = gradient->data();
  return [&rows, norm, gradient, all = rows.tensors()](StreamHandle stream) {
    norm_backward(rows.shape(), norm, rows.device().multiprocessors(), stream);
    gpulift::residual_add(gradient->data(), all.skip_gradient, all.sum_gradient, rows.count(), stream);
  };
}

gpulift::Step fused(const NormCase& rows) {
  return [&rows](StreamHandle stream) {
    if (rows.forward()) {
      norm_forward(rows.shape(), rows.tensors(), stream);
    } else {
      norm_backward(rows.shape(), rows.tensors(), rows.device().multiprocessors(), stream);
    }
  };
}

void run(gpulift::Trial& trial) {
  const NormCase rows(trial.device(),
                      {.rows = static_cast<std::size_t>(trial.number("rows")),
                       .columns = kColumns,
                       .norm = trial.word("norm") == "rms_norm" ? gpulift::Norm::kRms : gpulift::Norm::kLayer},
                      trial.word("pass") == "forward" ? NormCase::Pass::kForward : NormCase::Pass::kBackward,
                      trial.seed());
  // Four matrices each way. Forward: input, residual, sum, output. Backward: gradient, sum, skip, gradient of the sum.
  const double bytes = 4.0 * sizeof(__nv_bfloat16) * static_cast<double>(rows.count());
  trial.cost({.bytes = bytes, .roof = gpulift::memory_roof(rows.device().l2_bytes(), bytes)});
  trial.check({.meaning = "error against FP64, relative or of numbers below 1 absolute",
               .poison = [&](StreamHandle stream) { rows.poison(stream); },
               .error = [&](StreamHandle stream) { return rows.error(stream); },
               .tolerance = 1.0 / 128});
  // Rounding once to BF16 is at most 1/256 of a number. What is rounded on the way may be large where the sum is not.
  const auto arm = [&](const char* name, gpulift::Step (*make)(const NormCase&), double tolerance) {
    return gpulift::Arm{.name = name,
                        .make = [&rows, make] { return make(rows); },
                        .clock = gpulift::Clock::kUnheld,
                        .tolerance = tolerance};
  };
  trial.compare({arm("norm_kernel", norm_kernel, 1.0 / 32), arm("fused", fused, 1.0 / 128),
                 arm("op_by_op", by_operations, 1.0 / 16)});
}

gpulift::Point case_of(const std::string& pass, std::int64_t rows) { return {{"pass", pass}, {"rows", rows}}; }

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What is it worth to fuse the addition of a residual into its layer norm or RMS norm?",
    .expectation = R"(
        Bytes decide. Each way must move four matrices: of 65536 x 768 in BF16 0.40 GB, on an H100 whose copies reach
        3.0 TB/s 134 us. All arms count these bytes, so a share of the roof says how far a way is from that. A norm of
        one kernel behind an addition, as frameworks have it, moves 5 forward and 6 backward: 168 and 201 us, 1.25 and
        1.5 times the fused one. Op by op is a control: forward (add; mean and variance; normalise; scale) it moves 8,
        268 us, 0.63 of the speed; backward 13 (RMS norm 12), 436 (403) us, 0.46 (0.5). Fused should reach 0.85 of the
        copy. 128 rows stay in the cache and launches of some 2.2 us decide: fused, behind an addition, and op by op 1,
        2 and 4 of them forward, 2, 3 and 8 (RMS norm 6) backward. GPT-2 124M has 25 norms: at 32768 tokens the last
        step of fusing saves 1.3 ms, some 2 % of a training step.)",
    .predict =
        {{.arm = "norm_kernel", .cases = case_of("forward", 65536), .on = "h100", .step_time_s = {{151e-6, 185e-6}}},
         {.arm = "norm_kernel", .cases = case_of("backward", 65536), .on = "h100", .step_time_s = {{181e-6, 221e-6}}},
         {.arm = "fused", .cases = case_of("forward", 65536), .on = "h100", .speedup = {{1.12, 1.38}}},
         {.arm = "fused", .cases = case_of("forward", 128), .on = "h100", .speedup = {{1.8, 2.2}}},
         {.arm = "fused", .cases = {{"pass", "backward"}}, .on = "h100", .speedup = {{1.35, 1.65}}},
         {.arm = "op_by_op", .cases = case_of("forward", 65536), .on = "h100", .speedup = {{0.564, 0.69}}},
         {.arm = "op_by_op", .cases = case_of("forward", 128), .on = "h100", .speedup = {{0.45, 0.55}}},
         {.arm = "op_by_op",
          .cases = {{"pass", "backward"}, {"norm", "layer_norm"}, {"rows", 65536}},
          .on = "h100",
          .speedup = {{0.415, 0.507}}},
         {.arm = "op_by_op",
          .cases = {{"pass", "backward"}, {"norm", "rms_norm"}, {"rows", 65536}},
          .on = "h100",
          .speedup = {{0.449, 0.549}}},
         {.arm = "op_by_op",
          .cases = {{"pass", "backward"}, {"norm", "layer_norm"}, {"rows", 128}},
          .on = "h100",
          .speedup = {{0.338, 0.413}}},
         {.arm = "op_by_op",
          .cases = {{"pass", "backward"}, {"norm", "rms_norm"}, {"rows", 128}},
          .on = "h100",
          .speedup = {{0.45, 0.55}}}},
    .claims = {},
    .arms = {"norm_kernel", "fused", "op_by_op"},
    .controls = {"op_by_op"},
    .l2 = gpulift::Cache::kBySize,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"pass", {"forward", "backward"}}, {"norm", {"layer_norm", "rms_norm"}}, {"rows", {128, 65536}}},
    .quick = {{{"pass", "forward"}, {"norm", "layer_norm"}, {"rows", 65536}}},
    .run = run,
};
