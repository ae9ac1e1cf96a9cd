#include "core/host/testing/busy_work.hpp"

namespace {

using namespace gpulift::testing_techniques;

void run(gpulift::Trial& trial) {
  const Output output = make_output();
  trial.compare({working_arm("baseline", output, 1000), working_arm("other", output, 1000)});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What becomes of a technique without a check?",
    .expectation = "An error that says so; nothing is timed.",
    .gpus = 0,
    .arms = {"baseline", "other"},
    .quick = {{}},
    .run = run,
};
