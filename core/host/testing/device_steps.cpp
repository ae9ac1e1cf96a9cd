#include "core/host/testing/counted_spin.hpp"

namespace {

using namespace gpulift::testing_techniques;

constexpr std::int64_t kCycles = 100'000;

/// A kernel and a fill, for which it waits: no graph could hold this step.
gpulift::Arm waiting_arm(const std::string& name, const Counter& counter, const Counter& filled) {
  gpulift::Arm arm = spinning_arm(name, counter, kCycles);
  arm.make = [make = arm.make, filled] {
    return [step = make().step(), filled](gpulift::StreamHandle stream) {
      step(stream);
      gpulift::check(cudaMemsetAsync(filled->data(), 0, sizeof(std::uint64_t), stream));
      gpulift::check(cudaStreamSynchronize(stream));
    };
  };
  arm.clock = gpulift::Clock::kUnheld;
  return arm;
}

void run(gpulift::Trial& trial) {
  const Counter counter = make_counter(trial.device());
  const Counter filled = make_counter(trial.device());
  trial.check(expect_one(counter));
  gpulift::Arm worker = waiting_arm("worker", counter, filled);
  worker.worker = gpulift::Worker{.device = true};
  trial.compare({spinning_arm("one", counter, kCycles), waiting_arm("two", counter, filled), std::move(worker)});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "How many launches has a step?",
    .expectation = "One, and two with a fill, in any process.",
    .whole_steps = true,
    .arms = {"one", "two", "worker"},
    .quick = {{}},
    .run = run,
};
