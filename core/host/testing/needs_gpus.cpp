#include "core/host/testing/busy_work.hpp"

namespace {

using namespace gpulift::testing_techniques;

void run(gpulift::Trial& trial) {
  const Output output = make_output();
  gpulift::Arm arm = working_arm("other", output, 1000);
  arm.worker = gpulift::Worker{.device = true, .ranks = static_cast<int>(trial.number("gpus"))};
  compare_with(trial, std::move(arm), output);
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What becomes of a case that needs more GPUs than any machine has?",
    .expectation = "It is skipped, and says how many it needs.",
    .gpus = 64,  // without any call to CUDA, and built everywhere, as by .gpus = 0 here
    .arms = {"baseline", "other"},
    .sweep = {{"gpus", {64, 128}}},
    .quick = {{}},
    .run = run,
};
