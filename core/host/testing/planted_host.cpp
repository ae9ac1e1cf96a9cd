#include "core/host/testing/busy_work.hpp"

namespace {

using namespace gpulift::testing_techniques;

// Built several times with extra work of a known size.
constexpr int kRounds = 4000 + 4 * GPULIFT_EXTRA_PERMILLE;

void run(gpulift::Trial& trial) {
  const Output output = make_output();
  trial.check(expect_42(output));
  trial.compare({working_arm("baseline", output, kRounds), working_arm("other", output, kRounds)});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "Is extra work in one of two builds found, on the host?",
    .expectation = "The ratio of the rounds.",
    .gpus = 0,
    .arms = {"baseline", "other"},
    .quick = {{}},
    .run = run,
};
