#include "core/host/testing/busy_work.hpp"

namespace {

using namespace gpulift::testing_techniques;

void run(gpulift::Trial& trial) {
  const Output output = make_output();
  // Writes nothing, so the check finds the poison.
  compare_with(trial, {.name = "other", .make = [] { return [](gpulift::StreamHandle) {}; }}, output);
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What becomes of an arm that gives another result?",
    .expectation = "The case fails before anything is timed.",
    .gpus = 0,
    .arms = {"baseline", "other"},
    .quick = {{}},
    .run = run,
};
