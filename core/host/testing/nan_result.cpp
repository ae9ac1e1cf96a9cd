#include "core/host/testing/busy_work.hpp"

namespace {

using namespace gpulift::testing_techniques;

void run(gpulift::Trial& trial) {
  const Output output = make_output();
  trial.check({.meaning = "a number",
               .poison = nullptr,
               .error = [](gpulift::StreamHandle) { return std::numeric_limits<double>::quiet_NaN(); },
               .tolerance = 1});
  trial.compare({working_arm("baseline", output, 1000), working_arm("other", output, 1000)});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What becomes of an error that is no number?",
    .expectation = "The case fails, whatever the tolerance.",
    .gpus = 0,
    .arms = {"baseline", "other"},
    .quick = {{}},
    .run = run,
};
