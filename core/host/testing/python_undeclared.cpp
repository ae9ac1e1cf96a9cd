#include "core/harness/technique.hpp"

namespace {

void run(gpulift::Trial& trial) {
  trial.cost({.items = 1});
  trial.check({.meaning = "said by the script"});
  trial.compare({gpulift::python_arm("baseline"), gpulift::python_arm("other")});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What becomes of Python arms that are not declared as such?",
    .expectation = "An error: the manifest would not name them.",
    .gpus = 0,
    .arms = {"baseline", "other"},
    .quick = {{}},
    .run = run,
};
