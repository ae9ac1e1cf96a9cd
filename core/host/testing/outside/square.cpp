#include "core/host/testing/busy_work.hpp"

namespace {

using namespace gpulift::testing_techniques;

void run(gpulift::Trial& trial) {
  const Output output = make_output();
  compare_with(trial, working_arm("other", output, 2000), output);
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "Is a technique from outside of the checkout measured like any other?",
    .expectation = "Yes; its id begins with the name of its folder.",
    .gpus = 0,
    .arms = {"baseline", "other"},
    .quick = {{}},
    .run = run,
};
