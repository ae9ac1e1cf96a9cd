#include <cstdlib>

#include "core/host/testing/busy_work.hpp"

namespace {

using namespace gpulift::testing_techniques;

void run(gpulift::Trial& trial) {
  const Output output = make_output();
  gpulift::Arm arm{.name = "other", .make = [output]() -> gpulift::Step {
                     return [output](gpulift::StreamHandle) {
                       // Only a process of its own with this variable gives the right result.
                       const char* set = std::getenv("GPULIFT_TESTING_WORKER");
                       *output = set != nullptr && std::string(set) == "yes" ? busy_work(42, 1000) : 0;
                       *output = *output == 0 ? 0 : 42;
                     };
                   }};
  arm.worker = gpulift::Worker{.environment = {{"GPULIFT_TESTING_WORKER", "yes"}}};
  compare_with(trial, std::move(arm), output);
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "Is an arm in a process of its own measured like any other?",
    .expectation = "Yes; it has its own environment.",
    .gpus = 0,
    .arms = {"baseline", "other"},
    .quick = {{}},
    .run = run,
};
