#include "core/host/testing/busy_work.hpp"

namespace {

using namespace gpulift::testing_techniques;

void run(gpulift::Trial& trial) {
  const Output output = make_output();
  gpulift::Arm arm = working_arm("other", output, 1000);
  const auto gpus = static_cast<int>(trial.number("gpus"));
  if (gpus > 1) arm.worker = gpulift::Worker{.device = true, .ranks = gpus};
  compare_with(trial, std::move(arm), output);
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What becomes of a case that needs a GPU where there is none, or more than any machine has?",
    .expectation = "It is skipped, with the reason and the remedy, and says how many it needs.",
    .gpus = 1,  // without any call to CUDA, and built everywhere, as by .gpus = 0 here
    .arms = {"baseline", "other"},
    .sweep = {{"gpus", {1, 64, 128}}},
    .quick = {{{"gpus", 1}}},
    .run = run,
};
