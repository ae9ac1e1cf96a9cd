#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/cuda/buffer.hpp"
#include "core/cuda/handles.hpp"
#include "core/harness/technique.hpp"
#include "kernels/fill.hpp"
#include "kernels/spin.hpp"
#include "kernels/verify.hpp"
#include "workloads/device_time.hpp"

namespace {

using gpulift::Arm;
using gpulift::check;
using gpulift::DeviceBuffer;
using gpulift::StreamHandle;

constexpr int kPoison = 0xFF;

/// A batch in pinned memory that is copied to the device and worked on there: each element takes a chain of
/// multiply-adds, whose length is counted, so that the work is the same at any clock.
struct Batch {
  Batch(gpulift::Device& device, std::size_t bytes)
      : count(bytes / sizeof(float)), host(device, count), input(device, count), output(device, count) {}

  void copy(std::size_t first, std::size_t elements, StreamHandle stream) const {
    check(cudaMemcpyAsync(input.data() + first, host.data() + first, elements * sizeof(float), cudaMemcpyHostToDevice,
                          stream));
  }
  void compute(std::size_t first, std::size_t elements, int iterations, StreamHandle stream) const {
    gpulift::fma_chain(input.data() + first, output.data() + first, elements, iterations, stream);
  }

  std::size_t count;
  gpulift::PinnedBuffer<float> host;
  DeviceBuffer<float> input;
  DeviceBuffer<float> output;
};

/// Chunk k is copied and worked on in side stream k; the given stream waits for all of them, and they for it.
class ChunkedBatch {
 public:
  ChunkedBatch(gpulift::Device& device, const Batch& batch, std::size_t chunks, int iterations)
      : batch_(&batch), iterations_(iterations), forked_(gpulift::make_ordering_event()) {
    for (std::size_t k = 0; k < chunks; ++k) {
      lanes_.push_back({device.side_stream(k), gpulift::make_ordering_event()});
    }
  }

  void enqueue(StreamHandle stream) const {
    check(cudaEventRecord(forked_.get(), stream));
    for (std::size_t k = 0; k < lanes_.size(); ++k) {
      const std::size_t first = k * batch_->count / lanes_.size();
      const std::size_t elements = (k + 1) * batch_->count / lanes_.size() - first;
      const StreamHandle lane = lanes_[k].stream;
      check(cudaStreamWaitEvent(lane, forked_.get()));
      batch_->copy(first, elements, lane);
      batch_->compute(first, elements, iterations_, lane);
      check(cudaEventRecord(lanes_[k].done.get(), lane));
    }
    for (const Lane& lane : lanes_) check(cudaStreamWaitEvent(stream, lane.done.get()));
  }

 private:
  struct Lane {
    StreamHandle stream;
    gpulift::UniqueEvent done;
  };
  const Batch* batch_;
  int iterations_;
  gpulift::UniqueEvent forked_;
  std::vector<Lane> lanes_;
};

/// Rounds of the chain that take `ratio` times as long as the copy. Measured in the first launch of a case; the later
/// ones take the same, so that all launches do the same work.
int iterations_for(double ratio, const Batch& batch, gpulift::Trial& trial, StreamHandle stream) {
  if (const auto known = trial.recall("iterations")) {
    trial.note("iterations", *known);
    return std::stoi(*known);
  }
  constexpr int kFew = 256;
  constexpr int kMany = 1280;
  const auto compute_s = [&](int rounds) {
    return gpulift::calibrate_s([&](cudaStream_t s) { batch.compute(0, batch.count, rounds, s); }, stream);
  };
  const double copy_s = gpulift::calibrate_s([&](cudaStream_t s) { batch.copy(0, batch.count, s); }, stream);
  const double few_s = compute_s(kFew);
  const double round_s = (compute_s(kMany) - few_s) / (kMany - kFew);
  const double fixed_s = few_s - kFew * round_s;  // launch, and reading and writing the batch
  const int iterations = std::max(1, static_cast<int>(std::lround((ratio * copy_s - fixed_s) / round_s)));
  trial.note("iterations", std::to_string(iterations));
  trial.note("copy_alone_us", std::to_string(1e6 * copy_s));
  trial.note("compute_alone_us", std::to_string(1e6 * compute_s(iterations)));
  return iterations;
}

double compute_per_copy(const std::string& copy_to_compute) {
  if (copy_to_compute == "4_to_1") return 0.25;
  return copy_to_compute == "1_to_4" ? 4.0 : 1.0;
}

constexpr std::size_t kMostChunks = 8;

/// Makes and uses all side streams once. They stay with the process: what they take of the memory belongs to no arm,
/// and would be charged to the first that uses them.
void make_side_streams(gpulift::Device& device, const Batch& batch) {
  for (std::size_t k = 0; k < kMostChunks; ++k) {
    const StreamHandle stream = device.side_stream(k);
    batch.copy(0, 1, stream);
    batch.compute(0, 1, 1, stream);
    check(cudaStreamSynchronize(stream));
  }
}

void run(gpulift::Trial& trial) {
  gpulift::Device& device = trial.device();
  const Batch batch(device, static_cast<std::size_t>(trial.number("bytes")));
  make_side_streams(device, batch);
  const double ratio = compute_per_copy(trial.word("copy_to_compute"));
  const gpulift::UniqueStream setup = gpulift::make_stream();
  const gpulift::Verifier verifier(device);

  gpulift::fill_normal(batch.input.data(), batch.count, trial.seed(), setup.get());
  check(
      cudaMemcpyAsync(batch.host.data(), batch.input.data(), batch.host.bytes(), cudaMemcpyDeviceToHost, setup.get()));
  const int iterations = iterations_for(ratio, batch, trial, setup.get());
  const DeviceBuffer<float> expected(device, batch.count);  // the batch at rest, worked on in one piece
  gpulift::fma_chain(batch.input.data(), expected.data(), batch.count, iterations, setup.get());
  check(cudaStreamSynchronize(setup.get()));

  // The link bounds the step as long as the arithmetic takes no longer than the copy.
  trial.cost({.bytes = static_cast<double>(batch.host.bytes()),
              .flops = 2.0 * iterations * static_cast<double>(batch.count),
              .roof = ratio <= 1 ? "host_link/h2d" : ""});
  trial.check({.meaning = "exact bytes",
               .poison =
                   [&](StreamHandle stream) {  // the input too, so that work that did not wait for its copy is found
                     check(cudaMemsetAsync(batch.input.data(), kPoison, batch.input.bytes(), stream));
                     check(cudaMemsetAsync(batch.output.data(), kPoison, batch.output.bytes(), stream));
                   },
               .error =
                   [&](StreamHandle stream) {
                     return verifier.different_bytes(batch.output.data(), expected.data(), batch.output.bytes(),
                                                     stream);
                   },
               .tolerance = 0});

  const auto chunks = [&](std::size_t count) {
    return Arm{.name = "chunks_" + std::to_string(count), .make = [&device, &batch, count, iterations] {
                 auto chunked = std::make_shared<const ChunkedBatch>(device, batch, count, iterations);
                 return [chunked](StreamHandle stream) { chunked->enqueue(stream); };
               }};
  };
  trial.compare({Arm{.name = "one_stream",
                     .make =
                         [&] {
                           return [&](StreamHandle stream) {
                             batch.copy(0, batch.count, stream);
                             batch.compute(0, batch.count, iterations, stream);
                           };
                         }},
                 chunks(2), chunks(4), chunks(kMostChunks)});
}

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

gpulift::Point case_of(const std::string& copy_to_compute, std::int64_t bytes) {
  return {{"copy_to_compute", copy_to_compute}, {"bytes", bytes}};
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "How much time does copying a batch in chunks, over several streams, hide behind the work on it?",
    .expectation = R"(
        One stream takes copy + compute, perfect overlap max(copy, compute). In n equal chunks only the first copy and
        the last work stand alone: max + min / n. For 64 MiB (copy 1.2 ms) that is, with 2, 4 and 8 chunks, a speedup of
        1.33, 1.60 and 1.78 at 1:1, and of 1.11, 1.18 and 1.21 at 4:1 and 1:4, less some 5 us a chunk for the fork and
        the join of its stream. At 1 MiB the copy takes 19 us and a chunk's copy and work 2 to 10 us, near their launch
        cost, and a chunk no longer fills the device: little gain from 2 chunks, a loss with 8.)",
    .predict = {{.arm = "chunks_2", .cases = case_of("1_to_1", 64 * kMiB), .on = "nvidia", .speedup = {{1.2, 1.46}}},
                {.arm = "chunks_4", .cases = case_of("1_to_1", 64 * kMiB), .on = "nvidia", .speedup = {{1.44, 1.76}}},
                {.arm = "chunks_8", .cases = case_of("1_to_1", 64 * kMiB), .on = "nvidia", .speedup = {{1.6, 1.96}}},
                {.arm = "chunks_2", .cases = case_of("4_to_1", 64 * kMiB), .on = "nvidia", .speedup = {{0.999, 1.22}}},
                {.arm = "chunks_4", .cases = case_of("4_to_1", 64 * kMiB), .on = "nvidia", .speedup = {{1.06, 1.3}}},
                {.arm = "chunks_8", .cases = case_of("4_to_1", 64 * kMiB), .on = "nvidia", .speedup = {{1.09, 1.33}}},
                {.arm = "chunks_2", .cases = case_of("1_to_4", 64 * kMiB), .on = "nvidia", .speedup = {{0.999, 1.22}}},
                {.arm = "chunks_4", .cases = case_of("1_to_4", 64 * kMiB), .on = "nvidia", .speedup = {{1.06, 1.3}}},
                {.arm = "chunks_8", .cases = case_of("1_to_4", 64 * kMiB), .on = "nvidia", .speedup = {{1.09, 1.33}}}},
    .claims = {"overlap-hides-copies", "streams-overlap-copies"},
    .arms = {"one_stream", "chunks_2", "chunks_4", "chunks_8"},
    .l2 = gpulift::Cache::kCold,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"copy_to_compute", {"4_to_1", "1_to_1", "1_to_4"}}, {"bytes", {kMiB, 64 * kMiB}}},
    .quick = {{{"copy_to_compute", "1_to_1"}}},
    .run = run,
};
