#include <cstdlib>
#include <string>

#include "core/host/testing/busy_work.hpp"

namespace {

using namespace gpulift::testing_techniques;

// In the environment of the process, which both builds of a duet share.
constexpr const char* kCame = "GPULIFT_TESTING_CAME";

// Built several times: each says which build it is while its arm is made, and no earlier.
void run(gpulift::Trial& trial) {
  const Output output = make_output();
  trial.note("came", std::getenv(kCame) == nullptr ? "first" : "second");
  setenv(kCame, "yes", 1);
  trial.note("early", "same");
  gpulift::Arm arm = working_arm("other", output, 1000);
  arm.make = [&trial, make = arm.make] {
    trial.note("late", "same");
    trial.note("permille", std::to_string(GPULIFT_EXTRA_PERMILLE));
    return make();
  };
  compare_with(trial, std::move(arm), output);
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "Is what arms note while they are made kept, on both sides of a duet?",
    .expectation = "Both notes are in the record.",
    .gpus = 0,
    .arms = {"baseline", "other"},
    .quick = {{}},
    .run = run,
};
