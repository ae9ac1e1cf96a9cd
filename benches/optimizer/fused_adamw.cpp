#include <cuda_runtime_api.h>

#include <memory>
#include <numeric>
#include <vector>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/cuda/device.hpp"
#include "core/harness/technique.hpp"
#include "kernels/adamw.hpp"
#include "kernels/fill.hpp"
#include "kernels/verify.hpp"
#include "workloads/gpt_tensors.hpp"
#include "workloads/memory_roof.hpp"

namespace {

using gpulift::AdamWTensor;
using gpulift::DeviceBuffer;
using gpulift::StreamHandle;
using gpulift::TensorPiece;

constexpr gpulift::AdamWRates kRates{};
constexpr int kStep = 2;

template <typename T>
DeviceBuffer<T> upload(gpulift::Device& device, const std::vector<T>& values) {
  DeviceBuffer<T> data(device, values.size());
  gpulift::check(cudaMemcpy(data.data(), values.data(), data.bytes(), cudaMemcpyHostToDevice));
  return data;
}

/// Master weights and moments of all tensors behind one another.
struct State {
  State(gpulift::Device& device, std::size_t count)
      : master(device, count), mean(device, count), square(device, count) {}
  /// As the first step leaves them, without which the moments are zeros.
  void reset(AdamWTensor all, std::uint64_t seed, StreamHandle stream) const {
    gpulift::fill_normal(master.data(), master.size(), seed, stream);
    gpulift::check(cudaMemsetAsync(mean.data(), 0, mean.bytes(), stream));
    gpulift::check(cudaMemsetAsync(square.data(), 0, square.bytes(), stream));
    adamw_reference(with_state(all), kRates, kStep - 1, stream);
  }
  AdamWTensor with_state(AdamWTensor all) const {
    all.master = master.data();
    all.mean = mean.data();
    all.square = square.data();
    return all;
  }
  DeviceBuffer<float> master, mean, square;
};

void run(gpulift::Trial& trial) {
  gpulift::Device& device = trial.device();
  const std::vector<std::size_t> counts = gpulift::gpt_tensors(trial.word("model"));
  const std::size_t count = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  const DeviceBuffer<__nv_bfloat16> weight(device, count);
  const DeviceBuffer<__nv_bfloat16> gradient(device, count);
  const State state(device, count);
  const State expected(device, count);
  const gpulift::Verifier verifier(device);
  gpulift::fill_normal(gradient.data(), count, trial.seed(), nullptr);
  // FP64 takes all tensors as one, so a tensor or a piece that an arm forgets is found.
  const AdamWTensor all{.weight = weight.data(), .gradient = gradient.data(), .count = count};
  expected.reset(all, trial.seed() + 1, nullptr);
  adamw_reference(expected.with_state(all), kRates, kStep, nullptr);

  std::vector<AdamWTensor> tensors;
  std::size_t offset = 0;
  for (const std::size_t each : counts) {
    tensors.push_back({weight.data() + offset, gradient.data() + offset, state.master.data() + offset,
                       state.mean.data() + offset, state.square.data() + offset, each});
    offset += each;
  }
  const auto on_device = upload(device, tensors);
  const auto pieces = upload(device, gpulift::cut_tensors(counts, gpulift::kAdamWPiece));
  const auto each = gpulift::pieces_of_tensors(counts, gpulift::kAdamWPiece);
  gpulift::check(cudaDeviceSynchronize());

  const double bytes = 28.0 * static_cast<double>(count);
  trial.cost({.bytes = bytes, .roof = gpulift::memory_roof(device.l2_bytes(), bytes)});
  trial.check({.meaning = "error against FP64 of weights, master weights and moments",
               .poison =
                   [&](StreamHandle stream) {
                     state.reset(all, trial.seed() + 1, stream);
                     gpulift::check(cudaMemsetAsync(weight.data(), 0xFF, weight.bytes(), stream));
                   },
               .error =
                   [&](StreamHandle s) {  // added, so that a NaN of any stays one; each relative to its usual size
                     return verifier.max_relative_error(weight.data(), expected.master.data(), count, 1, s) / 1024 +
                            verifier.max_relative_error(state.master.data(), expected.master.data(), count, 1, s) +
                            verifier.max_relative_error(state.mean.data(), expected.mean.data(), count, 0.1, s) +
                            verifier.max_relative_error(state.square.data(), expected.square.data(), count, 0.1, s);
                   },
               .tolerance = 1e-5});
  trial.compare({{.name = "launch_a_tensor",
                  .make =
                      [&] {
                        return [&](StreamHandle stream) {
                          const TensorPiece* next = pieces.data();
                          for (const std::size_t piece_count : each) {
                            adamw(on_device.data(), next, piece_count, kRates, kStep, stream);
                            next += piece_count;
                          }
                        };
                      },
                  .clock = gpulift::Clock::kUnheld},
                 {.name = "one_launch",
                  .make =
                      [&] {
                        return [&](StreamHandle stream) {
                          adamw(on_device.data(), pieces.data(), pieces.size(), kRates, kStep, stream);
                        };
                      },
                  .clock = gpulift::Clock::kUnheld}});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What is it worth to step all tensors of AdamW in one launch instead of one each?",
    .expectation = R"(
        The same kernel on the same pieces: launches alone differ. A weight takes 28 bytes: read gradient (2), master
        weight, mean and square (12), write them and the weight (14). The 148 tensors of GPT-2 124M are 3.48 GB, on an
        H100 whose copies reach 3.0 TB/s 1.16 ms in one launch, which should reach 0.85 of the copy. Launched alone each
        of the 98 biases and norms takes some 3.5 us and each of the 50 matrices 3 us to start and end: 1.16 + 0.34 + 0.15
        = 1.65 ms, 1.4 times. The 52 tensors of the small model are 25 MB, which the cache holds: one launch of some 10
        us against 52 of 3: 15 times.)",
    .predict =
        {{.arm = "launch_a_tensor", .cases = {{"model", "gpt2"}}, .on = "h100", .step_time_s = {{1.48e-3, 1.82e-3}}},
         {.arm = "one_launch", .cases = {{"model", "gpt2"}}, .on = "h100", .speedup = {{1.26, 1.54}}},
         {.arm = "one_launch", .cases = {{"model", "small"}}, .on = "h100", .speedup = {{13.5, 16.5}}}},
    .claims = {},
    .arms = {"launch_a_tensor", "one_launch"},
    .l2 = gpulift::Cache::kBySize,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"model", {"gpt2", "small"}}},
    .quick = {{{"model", "gpt2"}}},
    .run = run,
};
