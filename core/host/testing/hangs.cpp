#include <chrono>
#include <thread>

#include "core/host/testing/busy_work.hpp"

namespace {

using namespace gpulift::testing_techniques;

void run(gpulift::Trial& trial) {
  const Output output = make_output();
  compare_with(trial,
               {.name = "other",
                .make = []() -> gpulift::Step {
                  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
                }},
               output);
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What becomes of a technique that never ends?",
    .expectation = "It is stopped after the time that was set; the run goes on.",
    .gpus = 0,
    .arms = {"baseline", "other"},
    .quick = {{}},
    .run = run,
};
