#include "core/host/testing/counted_spin.hpp"

namespace {

using namespace gpulift::testing_techniques;

void run(gpulift::Trial& trial) {
  const auto cycles = trial.number("cycles");
  const Counter counter = make_counter(trial.device());
  trial.check(expect_one(counter));
  trial.cost({.items = static_cast<double>(cycles)});
  trial.compare({spinning_arm("baseline", counter, cycles), spinning_arm("twice", counter, 2 * cycles)});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "Is a kernel of known cycles timed rightly?",
    .expectation = "Device time times SM clock is the cycles that it spun.",
    .arms = {"baseline", "twice"},
    .sweep = {{"cycles", {20'000, 10'000'000}}},
    .quick = {{}},
    .run = run,
};
