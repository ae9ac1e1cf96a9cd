#include "core/host/testing/busy_work.hpp"

namespace {

using namespace gpulift::testing_techniques;

void run(gpulift::Trial& trial) {
  const Output output = make_output();
  trial.cost({.items = std::numeric_limits<double>::infinity()});
  compare_with(trial, working_arm("other", output, 1000), output);
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What becomes of a figure that is not finite?",
    .expectation = "The record is refused as failed.",
    .gpus = 0,
    .arms = {"baseline", "other"},
    .quick = {{}},
    .run = run,
};
