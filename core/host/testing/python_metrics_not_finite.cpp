#include "core/harness/technique.hpp"

namespace {

void run(gpulift::Trial& trial) {
  trial.cost({.items = 1});
  trial.check({.meaning = "said by the script"});
  trial.compare({gpulift::python_arm("baseline"), gpulift::python_arm("other")});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What becomes of a Python arm that says a number that is not finite?",
    .expectation = "It is an error that names the metric.",
    .gpus = 0,
    .arms = {"baseline", "other"},
    .python = {"baseline", "other"},
    .quick = {{}},
    .run = run,
};
