// Casts by themselves, with what they move: what of precision/fp8_scaling and precision/fp8_linear is not product.

#include "kernels/fp8_cast.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/cuda/device.hpp"
#include "core/harness/technique.hpp"
#include "kernels/block_scaled_cast.hpp"
#include "kernels/fill.hpp"
#include "kernels/verify.hpp"
#include "workloads/matmul.hpp"
#include "workloads/memory_roof.hpp"
#include "workloads/replayed.hpp"

namespace {

using gpulift::BlockFormat;
using gpulift::DeviceBuffer;
using gpulift::Fp8Scaling;
using gpulift::ScaledPart;
using gpulift::StreamHandle;

constexpr std::int64_t kSide = 8192;
constexpr std::int64_t kCount = kSide * kSide;

struct Cast {
  const char* name;
  double bytes;  // of a number: 2 for each reading, 1 for each copy, scales where they count
  std::optional<ScaledPart> part;
  std::optional<BlockFormat> blocks;
  bool both_ways = false;
  double tolerance = 0.065;  // half a step of E4M3, relative
};
constexpr std::array<Cast, 8> kCasts{{{"tensor", 2 + 2 + 1, ScaledPart::kTensor, {}},
                                      {"row", 2 + 1, ScaledPart::kRow, {}},
                                      {"vector_128", 2 + 1 + 4.0 / 128, ScaledPart::kVector, {}},
                                      {"tile_128", 2 + 1, ScaledPart::kTile, {}},
                                      {"tensor_both_ways", 2 + 2 + 1 + 1, ScaledPart::kTensor, {}, true},
                                      {"row_both_ways", 2 + 2 + 1 + 1, ScaledPart::kRow, {}, true},
                                      {"mxfp8", 2 + 1 + 1.0 / 32, {}, BlockFormat::kMxfp8},
                                      {"nvfp4", 2 + 2 + 0.5 + 1.0 / 16, {}, BlockFormat::kNvfp4, false, 0.26}}};

/// What a cast makes, and how it is made and read again.
struct Copies {
  DeviceBuffer<std::uint8_t> numbers;
  DeviceBuffer<std::uint8_t> transposed;  // both ways
  DeviceBuffer<float> scales;
  DeviceBuffer<float> scales_of_transposed;
  DeviceBuffer<std::uint8_t> block_scales;

  Copies(gpulift::Device& device, const Cast& cast)
      : numbers(device, cast.blocks ? static_cast<std::size_t>(block_scaled_bytes(*cast.blocks, kCount)) : kCount),
        transposed(device, cast.both_ways ? kCount : 1),
        scales(device, cast.part ? fp8_scales(*cast.part, kSide, kSide) : 1 + tensor_scales(*cast.blocks)),
        scales_of_transposed(device, cast.both_ways ? scales.size() : 1),
        block_scales(device, cast.blocks ? gpulift::block_scales(*cast.blocks, kSide, kSide) : 1) {}

  gpulift::Fp8Copy by_rows() const { return {reinterpret_cast<__nv_fp8_e4m3*>(numbers.data()), scales.data()}; }
  gpulift::Fp8Copy by_columns() const {
    return {reinterpret_cast<__nv_fp8_e4m3*>(transposed.data()), scales_of_transposed.data()};
  }
  gpulift::BlockScaled in_blocks() const { return {numbers.data(), block_scales.data(), scales.data()}; }

  void make(const Cast& cast, const __nv_bfloat16* from, StreamHandle stream) const {
    if (cast.blocks) {
      cast_to_blocks(*cast.blocks, from, kSide, kSide, in_blocks(), stream);
    } else if (cast.both_ways) {
      cast_to_fp8_both_ways(*cast.part, from, kSide, kSide, by_rows(), by_columns(), stream);
    } else {
      cast_to_fp8(*cast.part, from, kSide, kSide, by_rows().numbers, scales.data(), stream);
    }
  }

  void poison(StreamHandle stream) const {
    gpulift::check(cudaMemsetAsync(numbers.data(), 0xFF, numbers.bytes(), stream));
    gpulift::check(cudaMemsetAsync(transposed.data(), 0xFF, transposed.bytes(), stream));
    gpulift::check(cudaMemsetAsync(scales.data(), gpulift::kHugeFloats, scales.bytes(), stream));
    gpulift::check(
        cudaMemsetAsync(scales_of_transposed.data(), gpulift::kHugeFloats, scales_of_transposed.bytes(), stream));
    gpulift::check(cudaMemsetAsync(block_scales.data(), 0xFF, block_scales.bytes(), stream));
  }

  void restore(const Cast& cast, bool from_transposed, float* to, StreamHandle stream) const {
    if (cast.blocks) {
      restore_from_blocks(*cast.blocks, in_blocks(), kSide, kSide, to, stream);
    } else {
      restore_from_fp8(*cast.part, from_transposed ? by_columns() : by_rows(), kSide, kSide, from_transposed, to,
                       stream);
    }
  }
};

void run(gpulift::Trial& trial) {
  gpulift::Device& device = trial.device();
  const Cast& cast = *std::ranges::find(kCasts, trial.word("cast"), &Cast::name);
  if (cast.blocks) {
    const std::string reason = why_scaling_unsupported(
        cast.blocks == BlockFormat::kMxfp8 ? Fp8Scaling::kMxfp8 : Fp8Scaling::kNvfp4, device.architecture());
    if (!reason.empty()) trial.skip(reason, "run it on a card that multiplies the format");
  }
  const DeviceBuffer<__nv_bfloat16> originals(device, kCount);
  const DeviceBuffer<float> restored(device, kCount);
  const gpulift::Verifier verifier(device);
  gpulift::fill_normal(originals.data(), kCount, trial.seed(), nullptr);
  gpulift::check(cudaDeviceSynchronize());
  std::weak_ptr<const Copies> current;

  const double bytes = cast.bytes * kCount;
  trial.cost({.bytes = bytes, .roof = gpulift::memory_roof(device.l2_bytes(), bytes)});
  trial.check(
      {.meaning = "difference from the original of what each copy says, relative or of numbers below 1 absolute",
       .poison = [&](StreamHandle stream) { current.lock()->poison(stream); },
       .error =
           [&](StreamHandle stream) {
             double error = 0;
             for (const bool transposed : {false, true}) {
               if (transposed && !cast.both_ways) continue;
               current.lock()->restore(cast, transposed, restored.data(), stream);
               const double found = verifier.max_relative_error(originals.data(), restored.data(), kCount, 1, stream);
               if (found > error || std::isnan(found)) error = found;
             }
             return error;
           },
       .tolerance = cast.tolerance});
  const auto own = [&]() -> gpulift::Step {
    const auto copies = std::make_shared<const Copies>(device, cast);
    current = copies;
    return gpulift::replayed(
        [copies, &cast, &originals](StreamHandle stream) { copies->make(cast, originals.data(), stream); });
  };
  trial.compare({gpulift::python_arm("torchao"), {.name = "own", .make = own, .clock = gpulift::Clock::kUnheld}});
}

std::vector<gpulift::Value> names() {
  std::vector<gpulift::Value> values;
  for (const Cast& cast : kCasts) values.emplace_back(cast.name);
  return values;
}

gpulift::Prediction own(const char* cast, double low, double high) {
  return {.arm = "own", .cases = {{"cast", cast}}, .on = "nvidia-h200", .speedup = {{low, high}}};
}

gpulift::Prediction own_time(const char* cast, double low, double high) {
  return {.arm = "own", .cases = {{"cast", cast}}, .on = "nvidia-h200", .step_time_s = {{low, high}}};
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "How near to the pace of memory are casts from BF16 to FP8, and what does a transposed copy add?",
    .expectation = R"(
        8192 x 8192 numbers, 134 MB, on an H200, whose copies reach 4.3 TB/s; on an H100, 3.0 TB/s, 1.4 times as long.
        The scale of a tensor needs a reading of its own: 5 bytes a number, 78 us; our two kernels some 85. Rows stay in
        registers and are read once, 3 bytes, 47 us; ours 52, as for 128 numbers and for tiles of 128 x 128. Copies both
        ways, which backward products on Hopper want, move 6 bytes, 94 us, by tensor and by rows, as largest numbers of
        columns need a reading ahead; stores of 32 and 64 bytes take ours to 110. torchao's, compiled and launched as one
        graph, read and write the same by tensor, in three kernels: 95 us, 1.12. By rows they read once more, from the
        cache: 60 us, 1.15. Blocks have kernels of its own in Triton: 52 us, 1.0 both. Both ways a transposition follows
        the cast, 134 MB more at some 70 % of the pace: 140 us, 1.3 by tensor; by rows the largest numbers of columns, 36
        us, a cast of rows, 60, and one of columns that is stored transposed, 75: 1.55. On Blackwell MXFP8 moves 3.03
        bytes, NVFP4, whose tensor is read ahead, 4.56; on Hopper nothing multiplies them.)",
    .predict = {own_time("tensor", 76e-6, 98e-6), own_time("row", 46e-6, 60e-6), own_time("vector_128", 46e-6, 60e-6),
                own_time("tile_128", 46e-6, 62e-6), own_time("tensor_both_ways", 92e-6, 128e-6),
                own_time("row_both_ways", 92e-6, 135e-6), own("tensor", 1.0, 1.25), own("row", 1.0, 1.3),
                own("vector_128", 0.9, 1.15), own("tile_128", 0.9, 1.2), own("tensor_both_ways", 1.1, 1.5),
                own("row_both_ways", 1.3, 1.8)},
    .found = R"(
        On an H200, of one launch. torchao's tiles of 128 x 128 take 140 us, 2.8 times ours for at most 1.2. Its
        kernel, of torchao's prototype, was read and not profiled: a block of 4 or 8 warps takes a tile, holds all of
        it in FP32, 64 KiB of registers, until its largest number is known, and turns it round before it is stored,
        although numbers lie in memory as they came. That few blocks fit beside one another, of which each loads and
        stores in turn, or that the turn goes through shared memory: which of both costs is not known. Its kernel for
        128 numbers of a row, tuned over how many rows a block takes, is as fast as ours, 58 us. Ours were launched by
        themselves then, up to 3 us sooner than a graph begins, 6 % of 50; since 2026-11-30 they are replayed, too.)",
    .arms = {"torchao", "own"},
    .python = {"torchao"},
    .l2 = gpulift::Cache::kBySize,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"cast", names()}},
    .run = run,
};
