#include "core/host/testing/counted_spin.hpp"

namespace {

using namespace gpulift::testing_techniques;

void run(gpulift::Trial& trial) {
  const Counter counter = make_counter(trial.device());
  trial.check(expect_one(counter));
  trial.compare({spinning_arm("one", counter, 100'000), gpulift::python_arm("two")});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "How many launches has a step in Python?",
    .expectation = "Two, as it is written; the baseline's has one.",
    .whole_steps = true,
    .arms = {"one", "two"},
    .python = {"two"},
    .quick = {{}},
    .run = run,
};
