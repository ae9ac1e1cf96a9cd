#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/harness/technique.hpp"
#include "core/host/testing/faults/fault.hpp"
#include "kernels/spin.hpp"
#include "workloads/device_time.hpp"

namespace {

using namespace gpulift::testing_faults;
using gpulift::check;
using gpulift::StreamHandle;

constexpr int kKernels = 20;
constexpr double kKernel_s = 5e-6;

void enqueue(std::int64_t cycles, std::uint64_t* counter, StreamHandle stream) {
  for (int i = 0; i < kKernels; ++i) {
    gpulift::spin(cycles, counter, stream);
    if (is_faulty()) check(cudaStreamSynchronize(stream));
  }
}

void run(gpulift::Trial& trial) {
  gpulift::Device& device = trial.device();
  const gpulift::DeviceBuffer<std::uint64_t> counter(device, 1);
  const std::int64_t cycles = gpulift::cycles_in(device, kKernel_s);
  trial.cost({.items = kKernels, .roof = {}});
  trial.check(
      {.meaning = "count of kernels",
       .poison = [&](StreamHandle stream) { check(cudaMemsetAsync(counter.data(), 0, counter.bytes(), stream)); },
       .error =
           [&](StreamHandle stream) {
             std::uint64_t count = 0;
             check(cudaMemcpyAsync(&count, counter.data(), sizeof count, cudaMemcpyDeviceToHost, stream));
             check(cudaStreamSynchronize(stream));
             return std::abs(static_cast<double>(count) - kKernels);
           }});
  trial.compare({{.name = "chain",
                  .make = [&] { return [&](StreamHandle stream) { enqueue(cycles, counter.data(), stream); }; },
                  .clock = gpulift::Clock::kHost}});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "Is it found when the host waits for every kernel of a chain?",
    .expectation = R"(
        Queued, 20 kernels of 5 us follow each other by 1 us: 120 us, and the host is done issuing at 2.7 us each after
        54 us. With a wait behind each, launch (3 us), start (2 us), kernel (5 us) and return (2 us) add up to 12 us:
        240 us, twice as long, all of it on the host in the step's own calls.)",
    .arms = {"chain"},
    .quick = {{}},
    .run = run,
};
