#include "core/cuda/error.hpp"
#include "core/host/testing/busy_work.hpp"

namespace {

using namespace gpulift::testing_techniques;

void run(gpulift::Trial& trial) {
  const Output output = make_output();
  compare_with(trial,
               {.name = "other", .make = []() -> gpulift::Step { throw gpulift::NotSupported("no such type here"); }},
               output);
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What becomes of an arm that the hardware lacks?",
    .expectation = "That arm is skipped; the others are measured.",
    .gpus = 0,
    .arms = {"baseline", "other"},
    .quick = {{}},
    .run = run,
};
