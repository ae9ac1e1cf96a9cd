#include "core/host/testing/counted_spin.hpp"
#include "core/host/testing/variant.hpp"

namespace {

using namespace gpulift::testing_techniques;

void run(gpulift::Trial& trial) {
  const std::int64_t cycles = 400'000 + 400 * kVariant;  // extra work of so many thousandths
  const Counter counter = make_counter(trial.device());
  trial.check(expect_kernels(counter));
  trial.compare({spinning_arm("baseline", counter, cycles), spinning_arm("other", counter, cycles)});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "Is extra work in one of two builds found, for arithmetic?",
    .expectation = "The ratio of the cycles.",
    .arms = {"baseline", "other"},
    .quick = {{}},
    .run = run,
};
