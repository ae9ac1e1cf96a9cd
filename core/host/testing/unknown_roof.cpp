#include "core/host/testing/busy_work.hpp"

namespace {

using namespace gpulift::testing_techniques;

void run(gpulift::Trial& trial) {
  const Output output = make_output();
  trial.cost({.bytes = 1, .roof = "host_memroy"});
  compare_with(trial, working_arm("other", output, 1000), output);
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What becomes of a cost under a roof that nothing measures?",
    .expectation = "The case fails and names it; nothing is timed.",
    .gpus = 0,
    .arms = {"baseline", "other"},
    .quick = {{}},
    .run = run,
};
