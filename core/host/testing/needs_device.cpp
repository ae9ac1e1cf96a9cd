#include "core/host/testing/busy_work.hpp"

namespace {

void run(gpulift::Trial& trial) {
  const auto output = gpulift::testing_techniques::make_output();
  gpulift::testing_techniques::compare_with(trial, gpulift::testing_techniques::working_arm("other", output, 1000),
                                            output);
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What becomes of a technique that needs a GPU where there is none?",
    .expectation = "It is skipped with the reason and the remedy.",
    .gpus = 1,  // without any call to CUDA, and built everywhere, as by .gpus = 0 here
    .arms = {"baseline", "other"},
    .quick = {{}},
    .run = run,
};
