#include "core/host/testing/busy_work.hpp"

namespace {

using namespace gpulift::testing_techniques;

void run(gpulift::Trial& trial) {
  const Output output = make_output();
  gpulift::Arm arm = working_arm("other", output, 1000);
  arm.worker = gpulift::Worker{.preload = "libgpulift_that_does_not_exist.so.1", .remedy = "install it"};
  compare_with(trial, std::move(arm), output);
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What becomes of a library that cannot be preloaded?",
    .expectation = "That arm is skipped with the remedy.",
    .gpus = 0,
    .arms = {"baseline", "other"},
    .quick = {{}},
    .run = run,
};
