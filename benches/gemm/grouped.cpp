// The products of a mixture of experts: many small ones, whose sizes the tokens decide. One grouped call, torch's,
// which is what transformers 5 takes for experts if nothing else is asked, or cuBLAS's; one strided batch, for which
// all are padded to the fullest expert; a call for each, on one stream, on eight, or recorded in a graph. torch's call
// in 2.11 is CUTLASS's grouped kernel on 9.0 (KernelPtrArrayTmaWarpSpecialized...,
// aten/src/ATen/native/cuda/GroupMM.cu), so that CUTLASS has no arm of its own. The pace of launches counts too, since
// they are a loop's cost. torch's call alone reads on the device how many tokens an expert has. All others know it on
// the host, for which a training waits in each layer, uncounted here; their plans are searched for these numbers, and
// the graph holds for them alone.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/cuda/check.hpp"
#include "core/cuda/device.hpp"
#include "core/cuda/error.hpp"
#include "core/harness/technique.hpp"
#include "workloads/expert_matmul.hpp"
#include "workloads/recorded_graph.hpp"

namespace {

using gpulift::ExpertCalls;
using gpulift::ExpertMatmul;
using gpulift::Experts;
using gpulift::MatmulPlan;
using gpulift::MatmulShape;

constexpr auto kType = gpulift::MatmulType::kBf16;

/// What a search found of all shapes that calls multiply, or why nothing.
struct Searched {
  std::vector<MatmulPlan> plans;
  std::string unavailable;
};

Searched search(gpulift::Trial& trial, const std::string& name, ExpertCalls calls, const Experts& experts) {
  Searched searched{.plans = {}, .unavailable = why_matmul_unsupported(kType, trial.device().architecture())};
  if (!searched.unavailable.empty()) return searched;
  try {
    for (const MatmulShape& shape : searched_shapes(calls, experts)) {
      searched.plans.push_back(gpulift::plan_of_case(trial, name + "/" + to_string(shape), [&] {
        return ExpertMatmul(trial.device(), calls, experts, trial.seed()).search(shape, {.budget_s = 0.5});
      }));
    }
  } catch (const gpulift::NotSupported& reason) {
    searched.unavailable = reason.what();
  }
  return searched;
}

/// Arms of a case: what they multiply, and of the arm that was made last its products, for the check.
struct Case {
  gpulift::Trial& trial;
  Experts experts;
  std::weak_ptr<ExpertMatmul> current = {};

  gpulift::Arm arm(const char* name, ExpertCalls calls, const Searched& searched, bool recorded = false) {
    const auto make = [this, calls, plans = searched.plans, recorded]() -> gpulift::Step {
      const auto matmul = std::make_shared<ExpertMatmul>(trial.device(), calls, experts, trial.seed());
      for (const MatmulPlan& plan : plans) matmul->use(plan);
      current = matmul;
      gpulift::Step step = [matmul](gpulift::StreamHandle stream) { matmul->enqueue(stream); };
      if (!recorded) return step;
      const auto graph = std::make_shared<gpulift::UniqueGraphExec>(gpulift::record_graph(step));
      return [matmul, graph](gpulift::StreamHandle stream) { gpulift::check(cudaGraphLaunch(graph->get(), stream)); };
    };
    return {.name = name, .make = make, .clock = gpulift::Clock::kUnheld, .unavailable = searched.unavailable};
  }
};

void run(gpulift::Trial& trial) {
  // Experts x features x inputs.
  const MatmulShape sizes = gpulift::parse_matmul_shape(trial.word("experts"));
  const bool evenly = trial.word("dealt") == "evenly";
  const Experts experts{sizes.n, sizes.k, gpulift::deal_tokens(sizes.m, trial.number("tokens"), evenly)};
  Case own{.trial = trial, .experts = experts};
  const Searched grouped = search(trial, "cublas_grouped", ExpertCalls::kGrouped, experts);
  const Searched batched = search(trial, "batched", ExpertCalls::kBatched, experts);
  const Searched loop = search(trial, "loop", ExpertCalls::kLoop, experts);  // once: what differs is how it is launched
  trial.cost({.flops = experts.flops(), .roof = "gemm/bf16"});
  trial.note("algorithm/cublas_grouped", "cuBLAS's own choice: the call takes none");
  trial.check({.meaning = "relative Frobenius error of each expert's results against FP64",
               .poison = [&](gpulift::StreamHandle stream) { own.current.lock()->poison(stream); },
               .error = [&](gpulift::StreamHandle stream) { return own.current.lock()->error(stream); },
               .tolerance = matmul_tolerance(kType, experts.inputs)});
  trial.compare({gpulift::python_arm("torch_grouped"), own.arm("cublas_grouped", ExpertCalls::kGrouped, grouped),
                 own.arm("batched", ExpertCalls::kBatched, batched), own.arm("loop", ExpertCalls::kLoop, loop),
                 own.arm("loop_on_8_streams", ExpertCalls::kLoopOnStreams, loop),
                 own.arm("graph_of_loop", ExpertCalls::kLoop, loop, /*recorded=*/true)});
}

constexpr const char* kUnevenly = "half_to_an_eighth";

gpulift::Point burst_of(const std::string& experts, std::int64_t tokens, const std::string& dealt) {
  return {{"experts", experts}, {"tokens", tokens}, {"dealt", dealt}, {"regime", "burst"}};
}
gpulift::Point of_64(std::int64_t tokens, const std::string& dealt = "evenly") {
  return burst_of("64x1408x2048", tokens, dealt);
}
gpulift::Point of_8(std::int64_t tokens, const std::string& dealt = "evenly") {
  return burst_of("8x14336x4096", tokens, dealt);
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "Which call multiplies a mixture of experts fastest: a grouped one, a padded batch, or one for each?",
    .expectation = R"(
        H100 and H200 SXM; written when an H100 had measured all but torch_grouped, loop_on_8_streams and graph_of_loop.
        torch takes tiles of 64 x 128 where experts have 128 tokens on average or fewer, else of 128 x 256, in clusters
        of two along the tokens. 64 experts of 1408x2048 have 369 MB of weights, 123 us of 3.0 TB/s and 86 of 4.3. 1024
        tokens, 16 for each: one block of each cluster has nothing to multiply, so that 0.65 of the bandwidth is left:
        190 us on an H100, 130 on an H200. The batch had 132 us there, 1.4x, cuBLAS's grouped call 142, 1.3x; a loop is
        64 calls of 5 to 10 us on the host, 490 us, 0.2x to 0.55x, on eight streams the same; in a graph 64 kernels of 4
        us, 260 us, 0.5x to 0.75x. 16384 tokens, 94 GFLOP, evenly: 768 tiles are 6 rounds on 132 multiprocessors of 24
        us each, with the ends 165 to 175 us. The batch had 176 us, 1.0x, cuBLAS 303, 0.57x, the loop 620, 0.27x to
        0.5x; on eight streams the host's 64 calls remain, 0.3x to 0.6x; in a graph each product still has the device to
        itself, 7 us, 0.33x to 0.5x. Half of the tokens for an eighth: 1056 tiles are 8 rounds, 230 us; the batch
        multiplies 64 x 1024 tokens, 4x what was asked, 440 us, 0.53x; cuBLAS 355, 0.65x. 8 experts of 14336x4096 have
        940 MB, 313 us and 218; 1024 tokens, 120 GFLOP in tiles of 64 x 128: 380 us and 300; the loop had 377 us, the
        batch 345. 16384 tokens evenly are 1.9 TFLOP: 7168 large tiles at 650 TFLOP/s, 3.0 ms; searched calls had 2.6 ms
        each way, 1.15x, and how they are launched is nothing; cuBLAS's grouped call 7.3 ms, 0.41x. Unevenly the batch
        multiplies 4x as much, 9.8 ms: 0.31x. Eight streams: Transformer Engine takes four.)",
    .predict =
        {{.arm = "torch_grouped", .cases = of_64(1024), .on = "h100", .step_time_s = {{150e-6, 220e-6}}},
         {.arm = "torch_grouped", .cases = of_64(1024), .on = "h200", .step_time_s = {{110e-6, 160e-6}}},
         {.arm = "batched", .cases = of_64(1024), .on = "nvidia-h", .speedup = {{1.15, 1.65}}},
         {.arm = "cublas_grouped", .cases = of_64(1024), .on = "nvidia-h", .speedup = {{1.05, 1.55}}},
         {.arm = "loop", .cases = of_64(1024), .on = "nvidia-h", .speedup = {{0.2, 0.55}}},
         {.arm = "loop_on_8_streams", .cases = of_64(1024), .on = "nvidia-h", .speedup = {{0.2, 0.55}}},
         {.arm = "graph_of_loop", .cases = of_64(1024), .on = "nvidia-h", .speedup = {{0.5, 0.75}}},
         {.arm = "torch_grouped", .cases = of_64(16384), .on = "nvidia-h", .step_time_s = {{150e-6, 210e-6}}},
         {.arm = "batched", .cases = of_64(16384), .on = "nvidia-h", .speedup = {{0.85, 1.2}}},
         {.arm = "cublas_grouped", .cases = of_64(16384), .on = "nvidia-h", .speedup = {{0.5, 0.7}}},
         {.arm = "loop", .cases = of_64(16384), .on = "nvidia-h", .speedup = {{0.27, 0.5}}},
         {.arm = "loop_on_8_streams", .cases = of_64(16384), .on = "nvidia-h", .speedup = {{0.3, 0.6}}},
         {.arm = "graph_of_loop", .cases = of_64(16384), .on = "nvidia-h", .speedup = {{0.33, 0.5}}},
         {.arm = "torch_grouped",
          .cases = of_64(16384, kUnevenly),
          .on = "nvidia-h",
          .step_time_s = {{200e-6, 280e-6}}},
         {.arm = "batched", .cases = of_64(16384, kUnevenly), .on = "nvidia-h", .speedup = {{0.45, 0.65}}},
         {.arm = "cublas_grouped", .cases = of_64(16384, kUnevenly), .on = "nvidia-h", .speedup = {{0.57, 0.78}}},
         {.arm = "torch_grouped", .cases = of_8(1024), .on = "h100", .step_time_s = {{350e-6, 430e-6}}},
         {.arm = "torch_grouped", .cases = of_8(1024), .on = "h200", .step_time_s = {{260e-6, 350e-6}}},
         {.arm = "torch_grouped", .cases = of_8(16384), .on = "nvidia-h", .step_time_s = {{2.75e-3, 3.3e-3}}},
         {.arm = "batched", .cases = of_8(16384), .on = "nvidia-h", .speedup = {{1.05, 1.28}}},
         {.arm = "loop", .cases = of_8(16384), .on = "nvidia-h", .speedup = {{1.03, 1.25}}},
         {.arm = "loop_on_8_streams", .cases = of_8(16384), .on = "nvidia-h", .speedup = {{1, 1.25}}},
         {.arm = "graph_of_loop", .cases = of_8(16384), .on = "nvidia-h", .speedup = {{1.03, 1.25}}},
         {.arm = "cublas_grouped", .cases = of_8(16384), .on = "nvidia-h", .speedup = {{0.36, 0.46}}},
         {.arm = "batched", .cases = of_8(16384, kUnevenly), .on = "nvidia-h", .speedup = {{0.27, 0.35}}},
         {.arm = "cublas_grouped", .cases = of_8(16384, kUnevenly), .on = "nvidia-h", .speedup = {{0.37, 0.48}}}},
    .found = R"(
        Of 8 large experts cuBLAS's grouped call had been expected at 0.9 to 1.0 of the loop, and has 0.36 on an H100
        and 0.38 to 0.42 on an H200, where it is at 266 to 318 TFLOP/s with 16384 tokens. NVIDIA's own account of the
        call (the blog on cuBLAS 12.5) says that its kernels use the tensor cores by warps alone, not by groups of four
        as Hopper's fastest ones do; kernel/matmul_ladder has 380 TFLOP/s by warps and 800 by groups. Whether cuBLAS
        13.1 still does is not known; the pace says so. That is what is known of this call, not of grouping: cuBLASLt
        has grouped products for Hopper from CUDA 13.3 on (pytorch/pytorch#177037), which 13.1 lacks, and of 64 experts
        and 1024 tokens, which are bound by weights, it has 1.14 to 1.26 of torch's. An H200, two runs of one launch:
        graph_of_loop of 64 experts and 1024 tokens has 0.33 to 0.37, not 0.5 or more: 5.6 us for each product, not 4.
        Its tile is 64 x 8 by cuBLASLt's numbers, so that 44 blocks for 132 multiprocessors read 5.8 MB, at 1 TB/s, and
        the next product waits for them; that this bounds it is reckoned. The batch has all 64 products' blocks at once,
        93 us, 4.0 TB/s. Eight streams differ from one by 6 % at most, either way; with 16384 tokens they have 0.22 to
        0.25, not 0.3 or more: 8 to 11 us for each of the 64 calls are the host's, as on one stream, and differ by a
        quarter from run to run. 8 experts and 1024 tokens, half of them for one, was not predicted: the loop has 1.16
        to 1.19, in a graph 1.21 to 1.24, on streams 1.29 to 1.33. torch takes 1.4 times as long as evenly: by the mean
        of 128 tokens it takes tiles of 64 (GroupMM.cu: 128 or fewer), and 73 tokens of seven experts are two tiles as
        128 are, so that 2464 tiles are 1.38 times the 1792 of before. The loop has a kernel for each size: 128 x 256
        for 512 tokens. 16384 tokens for 8: torch's kernel reaches 778 TFLOP/s where 650 were expected, so that nothing
        is more than 1.06 of it.)",
    .arms = {"torch_grouped", "cublas_grouped", "batched", "loop", "loop_on_8_streams", "graph_of_loop"},
    .python = {"torch_grouped"},
    .l2 = gpulift::Cache::kBySize,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"experts", {"64x1408x2048", "8x14336x4096"}},
              {"tokens", {std::int64_t{1024}, std::int64_t{16384}}},
              {"dealt", {"evenly", kUnevenly}},
              {"regime", {"burst", "sustained"}}},
    .quick = {},  // an interpreter that loads a framework for each case and launch
    .run = run,
};
