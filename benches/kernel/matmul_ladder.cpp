// What each rung of a matrix product written by hand is worth, against the library's best, on the same buffers.

#include "kernels/matmul_ladder/matmul_ladder.hpp"

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "core/cuda/device.hpp"
#include "core/cuda/error.hpp"
#include "core/harness/technique.hpp"
#include "workloads/best_matmul.hpp"
#include "workloads/matmul.hpp"

namespace {

using gpulift::Matmul;
using gpulift::MatmulPlan;
using gpulift::MatmulRung;
using gpulift::MatmulShape;
using gpulift::MatmulType;

/// The algorithm that an earlier launch found, or the fastest of the library's candidates.
MatmulPlan plan_for(gpulift::Trial& trial, const MatmulShape& shape) {
  const std::optional<std::string> known = trial.recall("plan");
  MatmulPlan plan = known ? gpulift::parse_matmul_plan(*known) : MatmulPlan{};
  if (known && plan.library_version == gpulift::matmul_library_version()) {
    plan.description = trial.recall("algorithm").value_or("");
  } else {
    plan =
        gpulift::find_best_matmul(trial.device(), MatmulType::kBf16, std::array{shape}, trial.seed(), {.budget_s = 1});
  }
  trial.note("plan", to_string(plan));
  trial.note("algorithm", plan.description);
  return plan;
}

/// The library's m x n result by columns is n rows of m: the operands change places.
gpulift::LadderProduct next_product(Matmul& matmul, const MatmulShape& shape) {
  const Matmul::Buffers buffers = matmul.next();
  return {.left = static_cast<const __nv_bfloat16*>(buffers.b),
          .right = static_cast<const __nv_bfloat16*>(buffers.a),
          .result = static_cast<__nv_bfloat16*>(buffers.d),
          .rows = shape.n,
          .columns = shape.m,
          .depth = shape.k};
}

gpulift::Arm rung_arm(gpulift::Trial& trial, MatmulRung rung, const MatmulShape& shape, Matmul& matmul) {
  gpulift::Arm arm{.name = matmul_rung_name(rung), .make = {}};
  arm.unavailable = why_rung_unsupported(rung, trial.device().architecture());
  if (!arm.unavailable.empty()) return arm;
  try {
    const gpulift::RungResources resources = rung_resources(rung);
    arm.metrics = [resources](const gpulift::Step&, gpulift::StreamHandle) {
      return gpulift::Metrics{{"kernel_registers", resources.registers},
                              {"kernel_shared_bytes", static_cast<double>(resources.shared_bytes)}};
    };
  } catch (const gpulift::NoDeviceCode& reason) {
    arm.unavailable = reason.what();
  }
  arm.make = [rung, shape, &matmul]() -> gpulift::Step {
    return [=, &matmul](gpulift::StreamHandle stream) { multiply(rung, next_product(matmul, shape), stream); };
  };
  return arm;
}

void run(gpulift::Trial& trial) {
  const std::string why = why_matmul_unsupported(MatmulType::kBf16, trial.device().architecture());
  if (!why.empty()) trial.skip(why);
  const MatmulShape shape = gpulift::parse_matmul_shape(trial.word("shape"));
  const MatmulPlan plan = plan_for(trial, shape);
  Matmul matmul(trial.device(), MatmulType::kBf16, shape, trial.seed());
  matmul.use(plan);
  trial.cost({.flops = shape.flops(), .roof = "gemm/bf16"});
  trial.check({.meaning = "relative Frobenius error against the FP64 product of the unrounded originals",
               .poison = [&](gpulift::StreamHandle stream) { matmul.poison(stream); },
               .error = [&](gpulift::StreamHandle stream) { return matmul.error(stream); },
               .tolerance = matmul_tolerance(MatmulType::kBf16, shape.k)});
  const auto library = [&](gpulift::StreamHandle stream) { matmul.enqueue(stream); };
  std::vector<gpulift::Arm> arms{{.name = "cublaslt", .make = [&] { return library; }}};
  for (const MatmulRung rung : gpulift::kMatmulRungs) arms.push_back(rung_arm(trial, rung, shape, matmul));
  trial.compare(std::move(arms));
}

gpulift::Point burst_of(const std::string& shape) { return {{"shape", shape}, {"regime", "burst"}}; }

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "How much of the library's speed does each rung of a hand-written BF16 matrix product reach?",
    .expectation = R"(
        H100 SXM, 4096 cubed, 137 GFLOP: cuBLASLt 720 TFLOP/s, 0.19 ms. naive reads 16 lines of the L1 for 8 products a
        thread, some 7 to 14 a cycle and multiprocessor: 3 to 6 TFLOP/s, 0.006x. tiled is bound by FP32 units: 60 % of
        67 TFLOP/s, 40, 0.055x. Both are controls: nobody multiplies BF16 without Tensor Cores. mma.sync feeds Hopper's
        Tensor Cores to 60 %: 400, 0.55x. wgmma has 512 tiles for 132 blocks, 4 rounds of 128: 97 % of the
        multiprocessors, the store of a tile costs 3 % more: 700, 0.97x. 8192 cubed is bound by power: 0.97x as well.
        The odd shape loses 6 % to tiles that are not full.
        Between them, of what an H100 was measured at before (cuBLASLt 790, mma 380): mma_unswizzled has ldmatrix's
        eight addresses in the same four banks, 1024 cycles of shared memory for 128 x 128 x 16 multiplications at 1.98
        GHz: 125, 0.16x. mma_swizzled waits 1500 cycles for a step's tiles and multiplies them in 1400, two blocks at
        once: 310, 0.39x. These two are controls as well. wgmma_tma reads 48 KiB of the L2 for each step of a block, 85
        FLOP a byte, of which 7 to 8 TB/s come: 600 to 680, and begins each tile with an empty ring: 0.8x.
        wgmma_multicast reads 32 KiB, and is short of wgmma by 2 to 3 us of the 44 that a tile takes: 0.94x. On the odd
        shape its 272 clusters for 66 are 4 rounds and a fifth that is almost empty, where those of cuBLASLt, twice 192
        x 176, are 264: 0.8x. wgmma takes 264 of 512 x 128 there, too: 0.97x.)",
    .predict =
        {{.arm = "cublaslt", .cases = burst_of("4096x4096x4096"), .on = "h100", .step_time_s = {{171e-6, 209e-6}}},
         {.arm = "mma", .cases = burst_of("4096x4096x4096"), .on = "h100", .speedup = {{0.495, 0.605}}},
         {.arm = "wgmma", .cases = burst_of("4096x4096x4096"), .on = "h100", .speedup = {{0.873, 1.07}}},
         {.arm = "wgmma", .cases = burst_of("8192x8192x8192"), .on = "h100", .speedup = {{0.873, 1.07}}},
         {.arm = "wgmma", .cases = burst_of("4104x4001x4008"), .on = "h100", .speedup = {{0.821, 1}}},
         {.arm = "naive", .cases = burst_of("4096x4096x4096"), .on = "h100", .speedup = {{0.0054, 0.0066}}},
         {.arm = "tiled", .cases = burst_of("4096x4096x4096"), .on = "h100", .speedup = {{0.0495, 0.0605}}},
         {.arm = "mma_unswizzled", .cases = burst_of("4096x4096x4096"), .on = "nvidia-h", .speedup = {{0.13, 0.19}}},
         {.arm = "mma_swizzled", .cases = burst_of("4096x4096x4096"), .on = "nvidia-h", .speedup = {{0.33, 0.46}}},
         {.arm = "mma", .cases = burst_of("4096x4096x4096"), .on = "nvidia-h200", .speedup = {{0.44, 0.53}}},
         {.arm = "wgmma_tma", .cases = burst_of("4096x4096x4096"), .on = "nvidia-h", .speedup = {{0.7, 0.9}}},
         {.arm = "wgmma_multicast", .cases = burst_of("4096x4096x4096"), .on = "nvidia-h", .speedup = {{0.88, 0.99}}},
         {.arm = "wgmma_multicast", .cases = burst_of("4104x4001x4008"), .on = "nvidia-h", .speedup = {{0.74, 0.87}}},
         {.arm = "wgmma", .cases = burst_of("4096x4096x4096"), .on = "nvidia-h200", .speedup = {{0.94, 1.03}}},
         {.arm = "wgmma", .cases = burst_of("4104x4001x4008"), .on = "nvidia-h200", .speedup = {{0.9, 1.05}}}},
    .found = R"(
        H200: at multiples of tiles TMA alone reaches 0.96, not 0.8: the L2 gave 8.9 TB/s, reckoned of what tiles read,
        not 7 to 8. Multicast adds nothing there (0.96), blocks that persist the rest (0.99 to 1.0). At the odd shape
        TMA alone has 0.64, and multicast a third more, 0.84. Reckoned: of rows of 8016 bytes every second begins within
        a sector, five of 32 bytes for four, 7 of 8 have a step's 128 bytes in two lines, and the L2 gives some 6 TB/s
        of them: what a block reads sets the pace.
        In the records of 2026-11-28 wgmma has clusters of 512 x 128 for that shape, 4 rounds for 5: 0.77, not 0.97.
        Their blocks read 40 KiB a step, not 32, and a step took 0.96 us: 5/4 of the bytes for 4/5 of the rounds. They
        are gone again. Squares alone, 272 on 55 clusters in 5 rounds, had 0.78 on an H100, not 0.82, and have 0.88 on
        an H200, three launches. Stream-K was tried there and left out: its arm in those records, wgmma_stream_k, deals
        whole tiles to all 66 clusters in 4 rounds and splits the last 8 by depth, and takes 213 us, as reckoned (211).
        So does wgmma without it, for which 239 had been reckoned: of 55 clusters a step takes 0.68 us, of 66, reckoned,
        0.76. So what the clusters share sets the pace, the L2 presumably, and not the rounds. naive has 9 TFLOP/s at
        the odd shape and 3.7 at 4096 cubed, where rows are 8 KiB apart: that they share sets of the L1 is inferred, not
        traced.)",
    .arms = {"cublaslt", "naive", "tiled", "mma_unswizzled", "mma_swizzled", "mma", "wgmma_tma", "wgmma_multicast",
             "wgmma"},
    .controls = {"naive", "tiled", "mma_unswizzled", "mma_swizzled"},
    .l2 = gpulift::Cache::kCold,
    .page_cache = gpulift::Cache::kNone,
    // Last: no side is a multiple of a tile. The rungs need multiples of 8 for two of them.
    .sweep = {{"shape", {"4096x4096x4096", "8192x8192x8192", "4104x4001x4008"}}, {"regime", {"burst", "sustained"}}},
    .quick = {{{"shape", "4096x4096x4096"}, {"regime", "burst"}}},
    .run = run,
};
