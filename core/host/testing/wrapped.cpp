#include <sys/resource.h>

#include "core/host/testing/busy_work.hpp"

namespace {

using namespace gpulift::testing_techniques;

constexpr int kNiceness = 7;

gpulift::Arm wrapped_arm(const std::string& name, const Output& output, std::vector<std::string> wrapper) {
  gpulift::Arm arm{.name = name, .make = [output]() -> gpulift::Step {
                     return [output](gpulift::StreamHandle) {
                       *output = getpriority(PRIO_PROCESS, 0) >= kNiceness && busy_work(1, 1000) != 0 ? 42 : 0;
                     };
                   }};
  arm.worker = gpulift::Worker{.remedy = "install it", .wrapper = std::move(wrapper)};
  return arm;
}

void run(gpulift::Trial& trial) {
  const Output output = make_output();
  trial.check(expect_42(output));
  trial.compare({working_arm("baseline", output, 1000),
                 wrapped_arm("niced", output, {"nice", "-n", std::to_string(kNiceness)}),
                 wrapped_arm("missing", output, {"gpulift_no_such_program"})});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "Is a worker run under the program that stands in front of it?",
    .expectation = "Yes; where that program is missing, the arm is skipped.",
    .gpus = 0,
    .arms = {"baseline", "niced", "missing"},
    .quick = {{}},
    .run = run,
};
