#include "kernels/layer_norm.hpp"

#include <charconv>
#include <stdexcept>
#include <string>
#include <system_error>

#include "core/harness/technique.hpp"
#include "workloads/norm_case.hpp"

namespace {

/// "<rows>x<columns>". Throws std::invalid_argument unless the text is two numbers.
gpulift::NormShape shape_of(const std::string& text, gpulift::Norm norm) {
  gpulift::NormShape shape{.rows = 0, .columns = 0, .norm = norm};
  const char* const end = text.data() + text.size();
  const auto [middle, no_rows] = std::from_chars(text.data(), end, shape.rows);
  if (no_rows == std::errc() && middle != end && *middle == 'x') {
    const auto [last, no_columns] = std::from_chars(middle + 1, end, shape.columns);
    if (no_columns == std::errc() && last == end) return shape;
  }
  throw std::invalid_argument("not a shape <rows>x<columns>: '" + text + "'");
}

void run(gpulift::Trial& trial) {
  const auto norm = trial.word("norm") == "rms_norm" ? gpulift::Norm::kRms : gpulift::Norm::kLayer;
  compare_norms(trial, gpulift::technique.arms, shape_of(trial.word("shape"), norm), true);
}

gpulift::Point case_of(const std::string& pass, const std::string& norm, const std::string& shape) {
  return {{"pass", pass}, {"norm", norm}, {"shape", shape}};
}
gpulift::Point backward_of(const std::string& shape) { return {{"pass", "backward"}, {"shape", shape}}; }

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What is it worth to fuse the addition of a residual into its layer norm or RMS norm, and by whom?",
    .expectation = R"(
        Kernels are compared: all arms replay them as a graph, as what the host takes to launch them is another
        technique's. Bytes decide, in BF16 on an H200 whose copies reach 4.3 TB/s. 32768 x 1024 and 8192 x 4096 are 67
        MB a matrix. Forward torch adds (3 matrices) and normalises (2): 49 us and, of a layer norm, which took 2 ns a
        row of 768, 70 of narrow rows and 45 of wide ones; of RMS norm 45 and 40. Ours moves 4 in 67 us: 1.8 and 1.4,
        and 1.4 and 1.3 of RMS norm. The compiler's one kernel is as fast. Liger's layer norm leaves the addition to
        torch: 1.3, of wide rows 1.1. Backward torch takes the gradient of the rows (3 matrices), reads two of them
        again for those of weight and bias (2) and adds the gradient past the norm (3). For the weight it has a block
        for each 32 columns, each of which takes all rows, unless there are more than 65536 rows and these blocks fill
        less than half of the multiprocessors (LaunchGammaBetaBackwardCUDAKernel, read). 1024 columns are 32 blocks of
        33 GB/s: up to 65536 rows 3.9 ns a row, 128 us of 32768 and 257 of 65536, 227 and 455 us in all, and with one
        row more 65 in place of 257: 263 us. 65536 rows are the worst, so they stand beside 65537, and lead nothing:
        whoever has fewer rows has that share of the loss all the same. 4096 columns are 128 blocks, which suffice: 149
        us. Ours reads all once, 67 us of 32768 and 134 of 65536: 3.4 up to 65536 rows, 2.0 above; of wide rows at 0.72
        of the copy, as RMS norm's was found, 87 us: 1.7. The compiler takes 1.35 times of ours, as found of 768
        columns. Liger's blocks, one a multiprocessor, take 1.0 to 1.3 us a row of 1024: 250 to 325 us of 32768, and
        for a layer norm the addition.)",
    .predict = {{.arm = "torch", .cases = backward_of("32768x1024"), .on = "h200", .step_time_s = {{195e-6, 280e-6}}},
                {.arm = "torch", .cases = backward_of("65536x1024"), .on = "h200", .step_time_s = {{420e-6, 560e-6}}},
                {.arm = "torch", .cases = backward_of("65537x1024"), .on = "h200", .step_time_s = {{225e-6, 310e-6}}},
                {.arm = "torch", .cases = backward_of("131072x1024"), .on = "h200", .step_time_s = {{450e-6, 620e-6}}},
                {.arm = "torch", .cases = backward_of("8192x4096"), .on = "h200", .step_time_s = {{125e-6, 185e-6}}},
                {.arm = "fused", .cases = backward_of("32768x1024"), .on = "nvidia-h", .speedup = {{2.8, 4.0}}},
                {.arm = "fused", .cases = backward_of("65536x1024"), .on = "nvidia-h", .speedup = {{2.9, 4.2}}},
                {.arm = "fused", .cases = backward_of("65537x1024"), .on = "nvidia-h", .speedup = {{1.6, 2.35}}},
                {.arm = "fused", .cases = backward_of("131072x1024"), .on = "nvidia-h", .speedup = {{1.6, 2.35}}},
                {.arm = "fused", .cases = backward_of("8192x4096"), .on = "nvidia-h", .speedup = {{1.4, 2.1}}},
                {.arm = "compiled", .cases = backward_of("32768x1024"), .on = "nvidia-h", .speedup = {{1.9, 3.1}}},
                {.arm = "compiled", .cases = backward_of("65537x1024"), .on = "nvidia-h", .speedup = {{1.1, 1.8}}},
                {.arm = "compiled", .cases = backward_of("131072x1024"), .on = "nvidia-h", .speedup = {{1.1, 1.8}}},
                {.arm = "compiled", .cases = backward_of("8192x4096"), .on = "nvidia-h", .speedup = {{1.0, 1.7}}},
                {.arm = "liger",
                 .cases = case_of("backward", "layer_norm", "32768x1024"),
                 .on = "nvidia-h",
                 .speedup = {{0.45, 0.8}}},
                {.arm = "liger",
                 .cases = case_of("backward", "rms_norm", "32768x1024"),
                 .on = "nvidia-h",
                 .speedup = {{0.65, 1.1}}},
                {.arm = "liger",
                 .cases = case_of("backward", "rms_norm", "8192x4096"),
                 .on = "nvidia-h",
                 .speedup = {{1.2, 2.0}}},
                {.arm = "fused",
                 .cases = case_of("forward", "layer_norm", "32768x1024"),
                 .on = "nvidia-h",
                 .speedup = {{1.5, 2.1}}},
                {.arm = "compiled",
                 .cases = case_of("forward", "layer_norm", "32768x1024"),
                 .on = "nvidia-h",
                 .speedup = {{1.4, 2.1}}},
                {.arm = "liger",
                 .cases = case_of("forward", "layer_norm", "32768x1024"),
                 .on = "nvidia-h",
                 .speedup = {{1.1, 1.5}}},
                {.arm = "fused",
                 .cases = case_of("forward", "rms_norm", "32768x1024"),
                 .on = "nvidia-h",
                 .speedup = {{1.2, 1.6}}},
                {.arm = "compiled",
                 .cases = case_of("forward", "rms_norm", "32768x1024"),
                 .on = "nvidia-h",
                 .speedup = {{1.15, 1.6}}},
                {.arm = "liger",
                 .cases = case_of("forward", "rms_norm", "32768x1024"),
                 .on = "nvidia-h",
                 .speedup = {{1.05, 1.5}}},
                {.arm = "fused",
                 .cases = case_of("forward", "layer_norm", "8192x4096"),
                 .on = "nvidia-h",
                 .speedup = {{1.2, 1.6}}},
                {.arm = "compiled",
                 .cases = case_of("forward", "layer_norm", "8192x4096"),
                 .on = "nvidia-h",
                 .speedup = {{1.15, 1.6}}},
                {.arm = "liger",
                 .cases = case_of("forward", "layer_norm", "8192x4096"),
                 .on = "nvidia-h",
                 .speedup = {{0.95, 1.25}}}},
    .found = R"(
        As predicted, 8192 x 4096 forward on an H200 in three launches; the others are not measured. Of 65536 x 768,
        which was the only one until 2026-11-29, an H200 had in two runs of one launch 385 and 454 us backward by torch,
        4.5 times of ours. That is its worst number of rows: with our arms, apart, 391 us of 65536 rows were 197 of
        65537 and 101 of 8192. Forward torch's addition was reckoned at 74 us, which left 131 for its layer norm and 70
        for its RMS norm of the same bytes: for a layer norm each number goes into a running mean, with a division
        (read, not profiled). Beside the compiler ours had 1.0 forward and 1.3 to 1.4 backward. Liger's backward kernels
        took the 0.5 to 0.6 ms that were predicted, 0.9 and 1.2 us for each row that a block takes in turn.)",
    .arms = {"torch", "fused", "compiled", "liger"},
    .python = {"torch", "compiled", "liger"},
    .l2 = gpulift::Cache::kBySize,
    .page_cache = gpulift::Cache::kNone,
    // Rows x columns. Each row count once, so that a launch stays at 20 cases: 1024 columns from where the cache ends
    // to beside torch's other way of summing up; 4096 of as many bytes as 32768 x 1024.
    .sweep = {{"pass", {"forward", "backward"}},
              {"norm", {"layer_norm", "rms_norm"}},
              {"shape", {"8192x4096", "32768x1024", "65536x1024", "65537x1024", "131072x1024"}}},
    .quick = {},  // three interpreters that load torch for each case and launch
    .run = run,
};
