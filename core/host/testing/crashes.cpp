#include <csignal>

#include "core/host/testing/busy_work.hpp"

namespace {

using namespace gpulift::testing_techniques;

void run(gpulift::Trial& trial) {
  const Output output = make_output();
  compare_with(trial,
               {.name = "other",
                .make = []() -> gpulift::Step {
                  std::signal(SIGSEGV, SIG_DFL);  // past the handler of a sanitizer
                  std::raise(SIGSEGV);
                  return {};
                }},
               output);
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What becomes of a technique that crashes?",
    .expectation = "An error that names the signal; the run goes on.",
    .gpus = 0,
    .arms = {"baseline", "other"},
    .quick = {{}},
    .run = run,
};
