#include "core/host/testing/busy_work.hpp"
#include "core/host/testing/variant.hpp"

namespace {

using namespace gpulift::testing_techniques;

void run(gpulift::Trial& trial) {
  const int rounds = 4000 + 4 * kVariant;  // extra work of so many thousandths
  const Output output = make_output();
  trial.check(expect_42(output));
  trial.compare({working_arm("baseline", output, rounds), working_arm("other", output, rounds)});
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
