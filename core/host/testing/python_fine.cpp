#include "core/host/testing/busy_work.hpp"

namespace {

using namespace gpulift::testing_techniques;

void run(gpulift::Trial& trial) {
  const Output output = make_output();
  compare_with(trial, gpulift::python_arm("other"), output);
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "Is a Python arm measured like any other, whatever it prints?",
    .expectation = "Yes; Python takes longer for as many rounds.",
    .gpus = 0,
    .arms = {"baseline", "other"},
    .python = {"other"},
    .quick = {{}},
    .run = run,
};
