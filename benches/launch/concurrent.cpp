#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/cuda/device.hpp"
#include "core/cuda/handles.hpp"
#include "core/harness/technique.hpp"
#include "kernels/fill.hpp"
#include "kernels/spin.hpp"
#include "kernels/verify.hpp"

namespace {

using gpulift::check;
using gpulift::Device;
using gpulift::StreamHandle;

constexpr std::size_t kKernels = 64;  // of a step
constexpr std::size_t kMostStreams = 16;
constexpr int kPoison = 0xFF;

/// An element takes a chain of multiply-adds, which is a thread's.
struct Size {
  std::size_t elements;
  int rounds;
};

/// One block waits for each multiply-add, 4 cycles; where all threads of the device have one, the FP32 units set the
/// pace: 16 cycles a round on 9.0.
Size size_named(const std::string& name, const Device& device) {
  constexpr std::size_t kBlock = 256;
  if (name == "one_block_2_us") return {.elements = kBlock, .rounds = 900};
  if (name == "one_block_50_us") return {.elements = kBlock, .rounds = 22'000};
  int threads = 0;
  check(cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerMultiProcessor, device.index()));
  return {.elements = static_cast<std::size_t>(device.multiprocessors()) * threads, .rounds = 5'600};
}

/// Kernels that do not depend on each other: all read the same, and each writes what is its own.
class Kernels {
 public:
  Kernels(Device& device, Size size, std::uint64_t seed)
      : size_(size),
        input_(device, size.elements),
        expected_(device, size.elements),
        outputs_(device, kKernels * size.elements) {
    gpulift::fill_normal(input_.data(), size.elements, seed, nullptr);
    gpulift::fma_chain(input_.data(), expected_.data(), size.elements, size.rounds, nullptr);
    check(cudaDeviceSynchronize());
  }

  void enqueue(std::size_t which, StreamHandle stream) const {
    gpulift::fma_chain(input_.data(), output(which), size_.elements, size_.rounds, stream);
  }
  void poison(StreamHandle stream) const { check(cudaMemsetAsync(outputs_.data(), kPoison, outputs_.bytes(), stream)); }
  double wrong_bytes(const gpulift::Verifier& verifier, StreamHandle stream) const {
    double wrong = 0;
    for (std::size_t k = 0; k < kKernels; ++k) {
      wrong += verifier.different_bytes(output(k), expected_.data(), expected_.bytes(), stream);
    }
    return wrong;
  }
  double flops() const { return 2.0 * static_cast<double>(kKernels * size_.elements) * size_.rounds; }

 private:
  float* output(std::size_t which) const { return outputs_.data() + which * size_.elements; }

  Size size_;
  gpulift::DeviceBuffer<float> input_;
  gpulift::DeviceBuffer<float> expected_;
  gpulift::DeviceBuffer<float> outputs_;
};

void run(gpulift::Trial& trial) {
  Device& device = trial.device();
  const Kernels kernels(device, size_named(trial.word("kernel"), device), trial.seed());
  const gpulift::Verifier verifier(device);
  const gpulift::UniqueEvent forked = gpulift::make_ordering_event();
  std::vector<gpulift::UniqueEvent> joined;
  for (std::size_t k = 0; k < kMostStreams; ++k) {
    kernels.enqueue(0, device.side_stream(k));  // what a stream takes at first use belongs to no arm
    joined.push_back(gpulift::make_ordering_event());
  }
  check(cudaDeviceSynchronize());

  trial.cost({.flops = kernels.flops(), .items = static_cast<double>(kKernels), .item = "kernel", .roof = {}});
  trial.check({.meaning = "exact bytes of every kernel's output",
               .poison = [&](StreamHandle stream) { kernels.poison(stream); },
               .error = [&](StreamHandle stream) { return kernels.wrong_bytes(verifier, stream); },
               .tolerance = 0});

  const auto one_stream = [&](StreamHandle stream) {
    for (std::size_t k = 0; k < kKernels; ++k) kernels.enqueue(k, stream);
  };
  const auto arm = [&](const char* name, std::size_t streams) {
    const auto step = [&, streams](StreamHandle stream) {
      check(cudaEventRecord(forked.get(), stream));
      for (std::size_t s = 0; s < streams; ++s) check(cudaStreamWaitEvent(device.side_stream(s), forked.get()));
      for (std::size_t first = 0; first < kKernels; first += streams) {  // 64 is a multiple of all
        for (std::size_t s = 0; s < streams; ++s) kernels.enqueue(first + s, device.side_stream(s));
      }
      for (std::size_t s = 0; s < streams; ++s) {
        check(cudaEventRecord(joined[s].get(), device.side_stream(s)));
        check(cudaStreamWaitEvent(stream, joined[s].get()));
      }
    };
    return gpulift::Arm{.name = name, .make = [step] { return step; }, .clock = gpulift::Clock::kHost};
  };
  // Launches are host work, so the host's clock judges: from the first launch to the end of the last kernel.
  trial.compare({{.name = "one_stream", .make = [&] { return one_stream; }, .clock = gpulift::Clock::kHost},
                 arm("streams_4", 4),
                 arm("streams_16", kMostStreams)});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "When do small kernels that do not depend on each other gain from several streams?",
    .expectation = R"(
        A launch costs the host 2.2 us, and the device 1 us between two kernels of a stream. Fork and join are two
        events and two waits a stream, some 3 us: for 64 kernels 0.2 us each with 4 streams, 0.75 with 16. One block of
        2 us: one stream 3.0 us a kernel, bound by the device; 4 streams 2.4, 16 streams 3.0, both bound by the host:
        1.25 and 1.0 times. One block of 50 us: 51 us, 12.8 (4 times) and 3.2 (16), or 6.4 (8) where the driver gives a
        process its usual 8 hardware queues. A kernel that fills the device: 51 us in all arms but for the gap, 1.02.)",
    .predict =
        {{.arm = "streams_4", .cases = {{"kernel", "one_block_2_us"}}, .on = "nvidia", .speedup = {{1.12, 1.38}}},
         {.arm = "streams_16", .cases = {{"kernel", "one_block_2_us"}}, .on = "nvidia", .speedup = {{0.95, 1.05}}},
         {.arm = "streams_4", .cases = {{"kernel", "one_block_50_us"}}, .on = "nvidia", .speedup = {{3.6, 4.4}}},
         {.arm = "streams_16", .cases = {{"kernel", "one_block_50_us"}}, .on = "nvidia", .speedup = {{8, 16}}},
         {.arm = "streams_4", .cases = {{"kernel", "whole_device_50_us"}}, .on = "nvidia", .speedup = {{0.918, 1.12}}},
         {.arm = "streams_16",
          .cases = {{"kernel", "whole_device_50_us"}},
          .on = "nvidia",
          .speedup = {{0.918, 1.12}}}},
    .arms = {"one_stream", "streams_4", "streams_16"},
    .l2 = gpulift::Cache::kWarm,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"kernel", {"one_block_2_us", "one_block_50_us", "whole_device_50_us"}}},
    .quick = {{{"kernel", "one_block_50_us"}}},
    .run = run,
};
