#include "core/cuda/error.hpp"
#include "core/host/testing/busy_work.hpp"

namespace {

using namespace gpulift::testing_techniques;

void run(gpulift::Trial& trial) {
  const Output output = make_output();
  compare_with(trial,
               {.name = "other", .make = []() -> gpulift::Step { throw gpulift::OutOfMemory("asked for too much"); }},
               output);
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What becomes of a case that does not fit?",
    .expectation = "It is skipped.",
    .needs_device = false,
    .arms = {"baseline", "other"},
    .quick = {{}},
    .run = run,
};
