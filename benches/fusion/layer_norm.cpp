#include "kernels/layer_norm.hpp"

#include <cstdint>
#include <string>

#include "core/harness/technique.hpp"
#include "workloads/norm_case.hpp"

namespace {

constexpr int kColumns = 768;  // of GPT-2 124M

void run(gpulift::Trial& trial) {
  const gpulift::NormShape shape{
      .rows = static_cast<std::size_t>(trial.number("rows")),
      .columns = kColumns,
      .norm = trial.word("norm") == "rms_norm" ? gpulift::Norm::kRms : gpulift::Norm::kLayer};
  compare_norms(trial, gpulift::technique.arms, shape, true);
}

gpulift::Point pass_of(const std::string& pass) { return {{"pass", pass}}; }
gpulift::Point case_of(const std::string& pass, const std::string& norm) { return {{"pass", pass}, {"norm", norm}}; }

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What is it worth to fuse the addition of a residual into its layer norm or RMS norm, and by whom?",
    .expectation = R"(
        Kernels are compared: Python's arms replay them as a graph, as what the host takes to launch them is another
        technique's. Bytes decide. Each pass must move four matrices, of 65536 x 768 in BF16 0.40 GB, on an H200 whose
        copies reach 4.3 TB/s 94 us. Forward torch adds (3 matrices, 74 us at 0.95 of the copy) and normalises (2, by a
        block a row, whose 768 numbers keep few threads busy: 67 us at 0.7): 141 us. Our kernel, fused, reaches 0.93:
        101 us, 1.4. torch.compile makes one kernel of it, some 0.85 of the copy: 1.27. Liger has such a kernel for RMS
        norm alone, a block of 4 warps a row, 0.8: 1.2; its layer norm leaves the addition to torch: 1.05. Backward
        torch takes the gradient of the rows (3 matrices), reads two of them again for those of weight and bias (2) and
        adds the gradient past the norm (3): 0.81 GB, 100 + 67 + 74 us. Ours reads all once, 103 us: 2.3. The compiler
        fuses the addition, 6 matrices at 0.8: 1.4, or with sums of rows and columns in one kernel 4: 2. Liger's has one
        block of 4 warps a multiprocessor, which takes 497 rows one after another, some 1 us each, 0.7 of them the wait
        for memory: 0.5 ms, 0.45, and for the layer norm the addition: 0.4.)",
    .predict =
        {{.arm = "torch", .cases = pass_of("forward"), .on = "h200", .step_time_s = {{118e-6, 160e-6}}},
         {.arm = "torch", .cases = pass_of("backward"), .on = "h200", .step_time_s = {{200e-6, 280e-6}}},
         {.arm = "fused", .cases = pass_of("forward"), .on = "nvidia-h", .speedup = {{1.25, 1.6}}},
         {.arm = "fused", .cases = pass_of("backward"), .on = "nvidia-h", .speedup = {{1.9, 2.7}}},
         {.arm = "compiled", .cases = pass_of("forward"), .on = "nvidia-h", .speedup = {{1.15, 1.5}}},
         {.arm = "compiled", .cases = pass_of("backward"), .on = "nvidia-h", .speedup = {{1.2, 2.1}}},
         {.arm = "liger", .cases = case_of("forward", "layer_norm"), .on = "nvidia-h", .speedup = {{0.95, 1.2}}},
         {.arm = "liger", .cases = case_of("forward", "rms_norm"), .on = "nvidia-h", .speedup = {{1.05, 1.4}}},
         {.arm = "liger", .cases = case_of("backward", "layer_norm"), .on = "nvidia-h", .speedup = {{0.3, 0.55}}},
         {.arm = "liger", .cases = case_of("backward", "rms_norm"), .on = "nvidia-h", .speedup = {{0.3, 0.65}}}},
    .found = R"(
        On an H200, two runs of one launch. Forward torch's addition is reckoned at 74 us, which leaves 131 for its
        layer norm and 70 for its RMS norm of the same bytes. Its source, read in a copy of main and not profiled, says
        what differs: for a layer norm each number goes into a running mean, with a division, and so does each of the 7
        exchanges between threads that a row waits for; RMS norm adds squares. Backward its gradient of the weight has a
        block for each 32 columns: of 768 columns 24 blocks for 132 multiprocessors, as only above 65536 rows it splits
        the rows as well. At a multiprocessor's share of the copy, 33 GB/s, they read two matrices in 257 us; with the
        rows' gradient, 70, and the addition, 74, that is 401 us, where 385 and 454 were measured; why the layer norm
        takes longer is not known. If so, a part of what others gain backward is torch's gap at this width and number of
        rows; one row more was not measured. Beside the compiler ours is worth 1.0 forward and 1.3 to 1.4 backward. The
        compiler's one kernel reaches 0.93 of the copy forward. Backward its RMS norm takes 133 us, less than six
        matrices at the copy's pace, 141: it seems to have sums of rows and columns in one kernel, as torch 2.11 comes
        (mix_order_reduction, read). Liger's layer norm takes 62 us behind the addition, half of torch's. Its backward
        kernels take the 0.5 to 0.6 ms that were predicted, 0.9 and 1.2 us for each row that a block takes in turn:
        torch is slower than expected, not Liger faster.)",
    .arms = {"torch", "fused", "compiled", "liger"},
    .python = {"torch", "compiled", "liger"},
    .l2 = gpulift::Cache::kBySize,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"pass", {"forward", "backward"}}, {"norm", {"layer_norm", "rms_norm"}}, {"rows", {65536}}},
    .quick = {},  // three interpreters that load torch for each case and launch
    .run = run,
};
