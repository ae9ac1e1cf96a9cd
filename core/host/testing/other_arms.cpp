#include "core/host/testing/busy_work.hpp"

namespace {

using namespace gpulift::testing_techniques;

void run(gpulift::Trial& trial) {
  const Output output = make_output();
  trial.check(expect_42(output));
  trial.compare({working_arm("baseline", output, 1000), working_arm("undeclared", output, 1000)});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What becomes of arms that were not declared?",
    .expectation = "An error that says so; nothing is timed.",
    .gpus = 0,
    .arms = {"baseline", "other"},
    .quick = {{}},
    .run = run,
};
