#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/cuda/check.hpp"
#include "core/harness/technique.hpp"
#include "core/host/testing/counted_spin.hpp"
#include "core/host/testing/faults/fault.hpp"
#include "kernels/spin.hpp"
#include "workloads/device_time.hpp"

namespace {

using namespace gpulift::testing_faults;
using namespace gpulift::testing_techniques;
using gpulift::StreamHandle;

constexpr int kKernels = 20;
constexpr double kKernel_s = 5e-6;

void enqueue(std::int64_t cycles, const Counter& counter, StreamHandle stream) {
  for (int i = 0; i < kKernels; ++i) {
    gpulift::spin(cycles, counter->data(), stream);
    if (is_faulty()) gpulift::check(cudaStreamSynchronize(stream));
  }
}

void run(gpulift::Trial& trial) {
  const Counter counter = make_counter(trial.device());
  const std::int64_t cycles = gpulift::cycles_in(trial.device(), kKernel_s);
  trial.cost({.items = kKernels, .roof = {}});
  trial.check(expect_kernels(counter, kKernels));
  trial.compare({{.name = "chain",
                  .make = [&] { return [&](StreamHandle stream) { enqueue(cycles, counter, stream); }; },
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
