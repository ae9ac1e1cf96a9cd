#include <csignal>

#include "core/host/testing/busy_work.hpp"

namespace {

using namespace gpulift::testing_techniques;

void run(gpulift::Trial& trial) {
  const Output output = make_output();
  gpulift::Arm arm{.name = "other", .make = []() -> gpulift::Step {
                     std::signal(SIGSEGV, SIG_DFL);  // past the handler of a sanitizer
                     std::raise(SIGSEGV);
                     return {};
                   }};
  arm.worker = gpulift::Worker{};
  compare_with(trial, std::move(arm), output);
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What becomes of a worker that crashes?",
    .expectation = "An error that names the worker and the signal.",
    .gpus = 0,
    .arms = {"baseline", "other"},
    .quick = {{}},
    .run = run,
};
