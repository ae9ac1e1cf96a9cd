#include <cstdlib>
#include <string>

#include "core/host/testing/busy_work.hpp"
#include "core/host/testing/variant.hpp"

namespace {

using namespace gpulift::testing_techniques;

// In the environment of the process, which both builds of a duet share.
constexpr const char* kCame = "GPULIFT_TESTING_CAME";

/// Says which build it is while its arm is made, and no earlier.
gpulift::Arm noting_arm(gpulift::Trial& trial, const Output& output) {
  trial.note("came", std::getenv(kCame) == nullptr ? "first" : "second");
  setenv(kCame, "yes", 1);
  trial.note("early", "same");
  gpulift::Arm arm = working_arm("other", output, 1000);
  arm.make = [&trial, make = arm.make] {
    trial.note("late", "same");
    trial.note("permille", std::to_string(kVariant));
    return make();
  };
  return arm;
}

/// The head's does six times the work, so that nobody takes it for the base's.
gpulift::Arm worker_arm(const Output& output) {
  gpulift::Arm arm = working_arm("other", output, 1000 * (1 + kVariant));
  arm.worker = gpulift::Worker{};
  return arm;
}

void run(gpulift::Trial& trial) {
  const Output output = make_output();
  compare_with(trial, trial.word("does") == "notes" ? noting_arm(trial, output) : worker_arm(output), output);
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "Is what arms note while they are made kept, and does a worker load its own build, on both sides?",
    .expectation = "Both notes are in the record, and the ratio of the rounds is 6.",
    .gpus = 0,
    .arms = {"baseline", "other"},
    .sweep = {{"does", {"notes", "works"}}},
    .quick = {{}},
    .run = run,
};
