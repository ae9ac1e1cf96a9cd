#include "core/harness/technique.hpp"

namespace {

void run(gpulift::Trial& trial) {
  trial.cost({.items = 1});
  trial.check({.meaning = "said by the script"});
  trial.compare({gpulift::python_arm("baseline"), gpulift::python_arm("other")});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What becomes of a worker that prints rubbish on its pipe?",
    .expectation = "An error that names the worker and shows the rubbish.",
    .gpus = 0,
    .arms = {"baseline", "other"},
    .python = {"baseline", "other"},
    .sweep = {{"says", {"no_json", "no_window"}}},
    .quick = {{}},
    .run = run,
};
