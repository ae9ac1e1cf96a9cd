#include <dlfcn.h>

#include <stdexcept>

#include "core/host/testing/counted_spin.hpp"

namespace {

using namespace gpulift::testing_techniques;

constexpr std::int64_t kCycles = 100'000;

/// Whether this process has opened the library that counts launches, which it does only to count.
bool counts() { return dlopen("libgpulift_launch_counter.so", RTLD_NOW | RTLD_NOLOAD) != nullptr; }

/// A kernel and a fill, for which it waits: no graph could hold this step.
gpulift::Arm waiting_arm(const std::string& name, const Counter& counter, const Counter& filled, bool refuses) {
  gpulift::Arm arm = spinning_arm(name, counter, kCycles);
  arm.make = [make = arm.make, filled, refuses] {
    return [step = make().step(), filled, refuses](gpulift::StreamHandle stream) {
      if (refuses && counts()) throw std::runtime_error("not while it is counted");
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
  const bool refuses = trial.word("when_counted") == "throws";
  trial.check(expect_kernels(counter));
  gpulift::Arm worker = waiting_arm("worker", counter, filled, false);
  worker.worker = gpulift::Worker{.device = true};
  trial.compare({spinning_arm("one", counter, kCycles), waiting_arm("two", counter, filled, refuses), std::move(worker),
                 gpulift::python_arm("python")});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "How many launches has a step, and what is left of a record where counting them fails?",
    .expectation = "One, and two with a fill, in any process; all but that count, and a note.",
    .whole_steps = true,
    .arms = {"one", "two", "worker", "python"},
    .python = {"python"},
    .sweep = {{"when_counted", {"steps", "throws"}}},
    .quick = {{}},
    .run = run,
};
