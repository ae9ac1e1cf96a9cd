#include "core/harness/technique.hpp"

namespace {

void run(gpulift::Trial& trial) {
  trial.check({.meaning = "nothing"});
  trial.compare({gpulift::python_arm("baseline"), gpulift::python_arm("other")});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "Which clock judges arms when all of them have events, or one has none?",
    .expectation = "Events, or for all the wall clock.",
    .gpus = 0,
    .arms = {"baseline", "other"},
    .python = {"baseline", "other"},
    .sweep = {{"without", {"none", "other"}}},
    .quick = {{}},
    .run = run,
};
