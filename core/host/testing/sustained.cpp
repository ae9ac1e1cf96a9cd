#include "core/host/testing/busy_work.hpp"

namespace {

using namespace gpulift::testing_techniques;

void run(gpulift::Trial& trial) {
  const Output output = make_output();
  compare_with(trial, working_arm("other", output, 1000), output);
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "How long are sustained windows?",
    .expectation = "At least a second each.",
    .gpus = 0,
    .arms = {"baseline", "other"},
    .sweep = {{"regime", {"sustained"}}},
    .quick = {{}},
    .run = run,
};
