#include "core/cuda/error.hpp"
#include "core/host/testing/busy_work.hpp"

namespace {

using namespace gpulift::testing_techniques;

/// An arm that does not even fit alone, or does not beside the others: it is made for its check, and then once more.
gpulift::Arm greedy_arm(const std::string& name, const Output& output, bool fits_alone) {
  gpulift::Arm arm = working_arm(name, output, 1000);
  arm.make = [make = arm.make, fits = fits_alone]() mutable {
    if (!fits) throw gpulift::OutOfMemory("asked for too much");
    fits = false;
    return make();
  };
  return arm;
}

void run(gpulift::Trial& trial) {
  const Output output = make_output();
  const std::string greedy = trial.word("greedy");
  const auto arm = [&](const std::string& name) {
    return greedy == name || greedy == "together" ? greedy_arm(name, output, greedy == "together")
                                                  : working_arm(name, output, 1000);
  };
  trial.check(expect_42(output));
  trial.compare({arm("baseline"), arm("other")});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What becomes of a case or an arm that does not fit?",
    .expectation = "An arm that does not fit alone is skipped, unless it is the baseline; else the case is.",
    .gpus = 0,
    .arms = {"baseline", "other"},
    .sweep = {{"greedy", {"together", "other", "baseline"}}},
    .quick = {{{"greedy", "together"}}},
    .run = run,
};
