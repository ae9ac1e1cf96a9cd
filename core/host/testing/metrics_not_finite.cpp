#include "core/host/testing/busy_work.hpp"

namespace {

using namespace gpulift::testing_techniques;

void run(gpulift::Trial& trial) {
  const Output output = make_output();
  gpulift::Arm other = working_arm("other", output, 1000);
  other.metrics = [](const gpulift::Step&, gpulift::StreamHandle) {
    return gpulift::Metrics{{"speed", std::numeric_limits<double>::quiet_NaN()}};
  };
  compare_with(trial, std::move(other), output);
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What becomes of a metric that is no number?",
    .expectation = "The case fails.",
    .gpus = 0,
    .arms = {"baseline", "other"},
    .quick = {{}},
    .run = run,
};
