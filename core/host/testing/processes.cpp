#include "core/host/testing/busy_work.hpp"

namespace {

using namespace gpulift::testing_techniques;

/// Counts its own steps and says how many there were when it was asked.
gpulift::Arm counting_arm(const std::string& name, const Output& output) {
  const auto steps = std::make_shared<int>(0);
  gpulift::Arm arm = working_arm(name, output, 1000);
  arm.make = [make = arm.make, steps] {
    return [step = make().step(), steps](gpulift::StreamHandle stream) {
      ++*steps;
      step(stream);
    };
  };
  arm.metrics = [steps](const gpulift::Step& step, gpulift::StreamHandle stream) {
    const gpulift::Metrics metrics{{"peak_allocated_bytes", 4096}, {"steps_before", *steps}};
    step(stream);
    return metrics;
  };
  return arm;
}

void run(gpulift::Trial& trial) {
  const Output output = make_output();
  trial.cost({.items = 8, .item = "image"});
  trial.check(expect_42(output));
  gpulift::Arm other = counting_arm("other", output);
  other.worker = gpulift::Worker{};
  trial.compare({counting_arm("baseline", output), std::move(other), gpulift::python_arm("python")});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "Is what an arm says of itself in the record, and is a Python arm measured whatever it prints?",
    .expectation = "Yes, of arms in this process, in one of their own and in Python.",
    .gpus = 0,
    .whole_steps = true,
    .arms = {"baseline", "other", "python"},
    .python = {"python"},
    .quick = {{}},
    .run = run,
};
