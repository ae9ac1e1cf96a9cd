#include "core/host/testing/busy_work.hpp"

namespace {

using namespace gpulift::testing_techniques;

// Built several times: the head's worker does six times the work, so that nobody takes it for the base's.
constexpr int kRounds = 1000 * (1 + GPULIFT_EXTRA_PERMILLE);

void run(gpulift::Trial& trial) {
  const Output output = make_output();
  gpulift::Arm arm = working_arm("other", output, kRounds);
  arm.worker = gpulift::Worker{};
  compare_with(trial, std::move(arm), output);
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "Does the worker of each side of a duet load its own build?",
    .expectation = "The ratio of the rounds, 6.",
    .gpus = 0,
    .arms = {"baseline", "other"},
    .quick = {{}},
    .run = run,
};
