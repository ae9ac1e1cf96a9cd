#include <cuda_runtime_api.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/harness/technique.hpp"
#include "kernels/fill.hpp"
#include "kernels/stream_ops.hpp"
#include "kernels/verify.hpp"

namespace {

using gpulift::Arm;
using gpulift::DeviceBuffer;
using gpulift::StreamHandle;

enum class Operation { kNone, kRead, kWrite, kCopy, kTriad };

constexpr float kScalar = 3.0F;
constexpr float kWritten = 1.5F;  // no normal deviate of the fill, which has random low bits, is likely to equal it

/// One allocation of the case's footprint, cut into as many equal arrays as the operation has: one for the read and the
/// write, two for the copy, three for the triad. So all arms move the same bytes, to within one cut.
struct Arrays {
  Arrays(gpulift::Device& device, std::size_t bytes)
      : all(device, bytes / sizeof(float)),
        half(all.size() / 2),
        third(all.size() / 3 / 4 * 4),  // whole vectors of 16 bytes
        partial_sums(device, gpulift::stream_read_partials(all.size())) {}

  /// The k-th of the three arrays of the triad: output, left, right.
  float* triad(int k) const { return all.data() + static_cast<std::size_t>(k) * third; }

  DeviceBuffer<float> all;
  std::size_t half;
  std::size_t third;
  DeviceBuffer<std::uint32_t> partial_sums;
};

/// How far the outcome of the operation is from what it should be: counts of bytes or words, but for the triad the
/// difference of sums, over the root of their length, which is how the rounding of the terms grows.
double error_of(Operation operation, const Arrays& arrays, const gpulift::Verifier& verifier, StreamHandle stream) {
  const std::size_t count = arrays.all.size();
  switch (operation) {
    case Operation::kRead:
      return verifier.sum_of_words(arrays.partial_sums.data(), arrays.partial_sums.size(), stream) ==
                     verifier.sum_of_words(arrays.all.data(), count, stream)
                 ? 0
                 : 1;
    case Operation::kWrite:
      return verifier.different_words(arrays.all.data(), count, std::bit_cast<std::uint32_t>(kWritten), stream);
    case Operation::kCopy:
      return verifier.different_bytes(arrays.all.data(), arrays.all.data() + arrays.half, arrays.half * sizeof(float),
                                      stream);
    case Operation::kTriad: {
      const double output = verifier.sum(arrays.triad(0), arrays.third, stream);
      const double left = verifier.sum(arrays.triad(1), arrays.third, stream);
      const double right = verifier.sum(arrays.triad(2), arrays.third, stream);
      return std::abs(output - (left + double{kScalar} * right)) / std::sqrt(static_cast<double>(arrays.third));
    }
    case Operation::kNone:
      break;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

void run(gpulift::Trial& trial) {
  const Arrays arrays(trial.device(), static_cast<std::size_t>(trial.number("bytes")));
  const gpulift::Verifier verifier(trial.device());
  Operation checked = Operation::kNone;

  const auto moved = static_cast<double>(arrays.all.bytes());  // bytes read and bytes written, added
  const gpulift::Cost cost{.bytes = moved, .roof = "device_memory"};
  trial.cost(cost);
  trial.check({.meaning = "exact words; triad: sums in FP64, over the root of their length",
               .poison =
                   [&](StreamHandle stream) {
                     gpulift::fill_normal(arrays.all.data(), arrays.all.size(), trial.seed(), stream);
                     gpulift::fill_pattern(arrays.partial_sums.data(), arrays.partial_sums.bytes(), trial.seed(),
                                           stream);
                   },
               .error = [&](StreamHandle stream) { return error_of(checked, arrays, verifier, stream); },
               .tolerance = 0});

  const auto arm = [&](const char* name, Operation operation, gpulift::Step step) {
    return Arm{.name = name, .make = [&checked, operation, step = std::move(step)] {
                 checked = operation;
                 return step;
               }};
  };
  float* const data = arrays.all.data();
  std::vector<Arm> arms{
      arm("read", Operation::kRead,
          [&, data](StreamHandle s) { gpulift::stream_read(data, arrays.all.size(), arrays.partial_sums.data(), s); }),
      arm("write", Operation::kWrite,
          [&, data](StreamHandle s) { gpulift::stream_write(data, arrays.all.size(), kWritten, s); }),
      arm("copy", Operation::kCopy,
          [&, data](StreamHandle s) { gpulift::stream_copy(data, data + arrays.half, arrays.half, s); }),
      arm("triad", Operation::kTriad,
          [&](StreamHandle s) {
            gpulift::stream_triad(arrays.triad(1), arrays.triad(2), kScalar, arrays.triad(0), arrays.third, s);
          }),
      arm("library_copy", Operation::kCopy, [&, data](StreamHandle s) {
        gpulift::check(
            cudaMemcpyAsync(data + arrays.half, data, arrays.half * sizeof(float), cudaMemcpyDeviceToDevice, s));
      })};
  // The rounding of n results to FP32 adds up to about 1e-7 of the root of n; one missing element of size 3 in 8 GiB
  // (7e8 elements) shows as 1e-4.
  arms[3].tolerance = 1e-5;
  arms[3].cost = gpulift::Cost{.bytes = 3.0 * sizeof(float) * static_cast<double>(arrays.third), .roof = cost.roof};
  trial.compare(std::move(arms));
}

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "How fast does device memory read, write, copy and add?",
    .expectation = R"(
        HBM3e of an H200 moves 4.8 TB/s by its datasheet, of which refresh and turning from reads to writes leave about
        90 %: 4.3 TB/s, 0.5 ms for 2 GiB. Read-only needs no turning and should lead (4.4 to 4.6 TB/s), copy and triad
        follow (4.1 to 4.4), and the driver's copy is a copy like ours. Below 1 GiB launch and ramp of some 5 us cost up
        to 10 %, against which the 50 MB or so of L2 hold up to a fifth of 256 MiB.)",
    .predict =
        {{.arm = "read", .cases = {{"bytes", 2 * kGiB}}, .on = "h200", .step_time_s = {{467e-6, 488e-6}}},
         {.arm = "write", .cases = {{"bytes", 2 * kGiB}}, .on = "h200", .step_time_s = {{450e-6, 550e-6}}},
         {.arm = "copy", .cases = {{"bytes", 2 * kGiB}}, .on = "h200", .step_time_s = {{488e-6, 524e-6}}},
         {.arm = "triad", .cases = {{"bytes", 2 * kGiB}}, .on = "h200", .step_time_s = {{488e-6, 524e-6}}},
         {.arm = "library_copy", .cases = {{"bytes", 2 * kGiB}}, .on = "h200", .step_time_s = {{488e-6, 524e-6}}}},
    .ceiling = true,
    .arms = {"read", "write", "copy", "triad", "library_copy"},
    .l2 = gpulift::Cache::kBySize,
    .page_cache = gpulift::Cache::kNone,
    // The footprint of one step: all arrays of an operation together, each byte touched once.
    .sweep = {{"bytes", {kGiB / 4, kGiB, 2 * kGiB, 8 * kGiB}}},
    .quick = {{{"bytes", 2 * kGiB}}},
    .run = run,
};
