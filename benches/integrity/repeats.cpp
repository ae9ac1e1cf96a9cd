// Silent data corruption: a card that computes something else now and then, and reports nothing. Not a comparison of
// arms but a check of each; their times are a by-product, so no cost names a roof.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/harness/technique.hpp"
#include "kernels/every_sm.hpp"
#include "kernels/fill.hpp"
#include "kernels/ordered_sum.hpp"
#include "kernels/verify.hpp"
#include "workloads/matmul.hpp"
#include "workloads/repeated_work.hpp"

namespace {

using gpulift::check;
using gpulift::Cost;
using gpulift::Device;
using gpulift::DeviceBuffer;
using gpulift::MatmulShape;
using gpulift::MatmulType;
using gpulift::RepeatedWork;
using gpulift::StreamHandle;
using gpulift::Verifier;

constexpr std::size_t kBytes = std::size_t{256} << 20;
constexpr MatmulShape kBf16Shape{8192, 8192, 8192};
constexpr MatmulShape kFp32Shape{4096, 4096, 4096};
constexpr int kRounds = 256;
constexpr int kBlocksEach = 16;  // twice what a multiprocessor holds at a time

/// The seeded data that copy and sum read.
struct Source {
  DeviceBuffer<float> data;
  const Verifier& verifier;
};

RepeatedWork copy_work(Device& device, const Source& source) {
  const auto target = std::make_shared<DeviceBuffer<float>>(device, source.data.size());
  return {.step =
              [=, from = source.data.data()](StreamHandle stream) {
                check(cudaMemcpyAsync(target->data(), from, kBytes, cudaMemcpyDeviceToDevice, stream));
              },
          .poison = [=](StreamHandle stream) { check(cudaMemsetAsync(target->data(), 0xFF, kBytes, stream)); },
          .result = [=] { return target->data(); },
          .result_bytes = kBytes,
          .fault =
              [=, &source](StreamHandle stream) {
                return source.verifier.different_bytes(target->data(), source.data.data(), kBytes, stream);
              }};
}

RepeatedWork sum_work(Device& device, const Source& source) {
  const auto sums = std::make_shared<DeviceBuffer<double>>(device, gpulift::ordered_sum_results(source.data.size()));
  return {.step = [=, &data = source.data](
                      StreamHandle stream) { gpulift::ordered_sum(data.data(), data.size(), sums->data(), stream); },
          .poison = [=](StreamHandle stream) { check(cudaMemsetAsync(sums->data(), 0xFF, sums->bytes(), stream)); },
          .result = [=] { return sums->data(); },
          .result_bytes = sums->bytes(),
          .fault =
              [=, &source](StreamHandle stream) {
                double sum = 0;
                check(cudaMemcpyAsync(&sum, sums->data(), sizeof sum, cudaMemcpyDeviceToHost, stream));
                const double expected = source.verifier.sum(source.data.data(), source.data.size(), stream);
                // FP64 rounds a sum of 7e7 normals (some 1e4) by far less than 1e-6, in any order.
                return std::abs(sum - expected) <= 1e-6 ? 0.0 : 1.0;
              }};
}

RepeatedWork gemm_work(gpulift::Trial& trial, MatmulType type, const MatmulShape& shape) {
  const auto matmul = std::make_shared<gpulift::Matmul>(trial.device(), type, shape, trial.seed());
  // The library's first choice. cuBLAS promises equal bits from run to run for work on one stream.
  const auto found = matmul->search({.budget_s = 0, .rest_s = 0, .candidates = 1});
  trial.note("algorithm/gemm_" + matmul_type_name(type), found.plan.description);
  const auto output_bytes = std::size_t{type == MatmulType::kFp32 ? 4u : 2u};
  return {.step = [=](StreamHandle stream) { matmul->enqueue(stream); },
          .poison = [=](StreamHandle stream) { matmul->poison(stream); },
          .result = [=] { return matmul->latest().d; },
          .result_bytes = static_cast<std::size_t>(shape.m * shape.n) * output_bytes,
          .fault =
              [=](StreamHandle stream) {
                return matmul->error(stream) <= gpulift::matmul_tolerance(type, shape.k) ? 0.0 : 1.0;
              }};
}

/// One hash per block, and how often each multiprocessor was visited since this was made.
struct EverySm {
  EverySm(Device& device, std::uint64_t from_seed)
      : seed(from_seed),
        multiprocessors(device.multiprocessors()),
        hashes(device, static_cast<std::size_t>(kBlocksEach * multiprocessors)),
        visits(device, gpulift::kMultiprocessorIds) {
    check(cudaMemset(visits.data(), 0, visits.bytes()));
    check(cudaDeviceSynchronize());
  }

  void run(StreamHandle stream) const {
    gpulift::run_on_every_sm(seed, kRounds, static_cast<unsigned>(hashes.size()), hashes.data(), visits.data(), stream);
  }

  /// Blocks whose hash is not that of the first one, and multiprocessors that no block ever ran on.
  double fault(const Verifier& verifier, StreamHandle stream) const {
    std::uint32_t hash = 0;
    std::vector<std::uint32_t> counts(visits.size());
    check(cudaMemcpyAsync(&hash, hashes.data(), sizeof hash, cudaMemcpyDeviceToHost, stream));
    check(cudaMemcpyAsync(counts.data(), visits.data(), visits.bytes(), cudaMemcpyDeviceToHost, stream));
    check(cudaStreamSynchronize(stream));
    const double different = verifier.different_words(hashes.data(), hashes.size(), hash, stream);
    const auto seen = std::count_if(counts.begin(), counts.end(), [](std::uint32_t count) { return count > 0; });
    return different + static_cast<double>(std::abs(multiprocessors - seen));
  }

  std::uint64_t seed;
  int multiprocessors;
  DeviceBuffer<std::uint32_t> hashes;
  DeviceBuffer<std::uint32_t> visits;
};

RepeatedWork every_sm_work(gpulift::Trial& trial, const Verifier& verifier) {
  const auto work = std::make_shared<EverySm>(trial.device(), trial.seed());
  return {.step = [=](StreamHandle stream) { work->run(stream); },
          .poison = [=](StreamHandle s) { check(cudaMemsetAsync(work->hashes.data(), 0xFF, work->hashes.bytes(), s)); },
          .result = [=] { return work->hashes.data(); },
          .result_bytes = work->hashes.bytes(),
          .fault = [=, &verifier](StreamHandle stream) { return work->fault(verifier, stream); }};
}

void run(gpulift::Trial& trial) {
  Device& device = trial.device();
  const Verifier verifier(device);
  const Source source{DeviceBuffer<float>(device, kBytes / sizeof(float)), verifier};
  gpulift::fill_normal(source.data.data(), source.data.size(), trial.seed(), nullptr);
  check(cudaDeviceSynchronize());
  const gpulift::RepeatCheck repeats(device, kBytes);
  std::weak_ptr<RepeatedWork> current;  // of the arm that was made last

  trial.check({.meaning = "bytes that differ from the first result, over all repeats and multiprocessors",
               .poison = [&](StreamHandle stream) { current.lock()->poison(stream); },
               .error = [&](StreamHandle s) { return repeats.error(*current.lock(), trial.number("repeats"), s); },
               .tolerance = 0});

  const auto arm = [&](const char* name, const Cost& cost, std::function<RepeatedWork()> make_work) {
    gpulift::Arm made{.name = name, .make = [&current, make_work = std::move(make_work)]() -> gpulift::Step {
                        const auto work = std::make_shared<RepeatedWork>(make_work());
                        current = work;
                        return [work](StreamHandle stream) { work->step(stream); };
                      }};
    made.cost = cost;
    return made;
  };
  const double bytes = kBytes;
  const double operations = gpulift::every_sm_operations(kRounds) * kBlocksEach * device.multiprocessors();
  std::vector<gpulift::Arm> arms{
      arm("copy", {.bytes = 2 * bytes}, [&] { return copy_work(device, source); }),  // read and written
      arm("reduction", {.bytes = bytes}, [&] { return sum_work(device, source); }),
      arm("gemm_bf16", {.flops = kBf16Shape.flops()}, [&] { return gemm_work(trial, MatmulType::kBf16, kBf16Shape); }),
      arm("gemm_fp32", {.flops = kFp32Shape.flops()}, [&] { return gemm_work(trial, MatmulType::kFp32, kFp32Shape); }),
      arm("every_sm", {.flops = operations}, [&] { return every_sm_work(trial, verifier); })};
  arms[2].unavailable = gpulift::why_matmul_unsupported(MatmulType::kBf16, device.architecture());
  trial.compare(std::move(arms));
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "Does the same work give the same bits every time and on every multiprocessor?",
    .expectation = R"(
        Yes: 0 differences. On an H200 a repeat overwrites the result, takes the step and compares. Copy: 0.27 GB
        overwritten, 2 x 0.27 GB copied, 2 x 0.27 GB compared at 4.2 TB/s: 0.3 ms. Reduction: 0.27 GB, 0.07 ms. bf16
        8192^3: 1.1e12 operations at 730 TFLOP/s and 0.4 GB for the rest, 1.6 ms. fp32 4096^3: 1.4e11 at 50 TFLOP/s, 2.8
        ms. Every multiprocessor: each of its 4 schedulers has 32 warps of 256 rounds with some 117 integer instructions
        at 2 clocks, 1.9e6 clocks, 1.0 ms. So 200 repeats take 0.06, 0.02, 0.3, 0.6 and 0.2 s, 20 repeats 0.12 s
        together. Any difference is a fault of the card, its memory or its driver, and a later run that passes does not
        take it back.)",
    .ceiling = true,
    .integrity = true,
    .arms = {"copy", "reduction", "gemm_bf16", "gemm_fp32", "every_sm"},
    .l2 = gpulift::Cache::kBySize,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"repeats", {20, 200}}},
    .quick = {{{"repeats", 20}}},
    .run = run,
};
