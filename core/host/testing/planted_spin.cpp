#include "core/host/testing/counted_spin.hpp"

namespace {

using namespace gpulift::testing_techniques;

// Built several times with extra work of a known size.
constexpr std::int64_t kCycles = 400'000 + 400 * GPULIFT_EXTRA_PERMILLE;

void run(gpulift::Trial& trial) {
  const Counter counter = make_counter(trial.device());
  trial.check(expect_one(counter));
  trial.compare({spinning_arm("baseline", counter, kCycles), spinning_arm("other", counter, kCycles)});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "Is extra work in one of two builds found, for arithmetic?",
    .expectation = "The ratio of the cycles.",
    .arms = {"baseline", "other"},
    .quick = {{}},
    .run = run,
};
