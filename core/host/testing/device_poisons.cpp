#include "core/host/testing/counted_spin.hpp"

namespace {

using namespace gpulift::testing_techniques;

void run(gpulift::Trial& trial) {
  const Counter counter = make_counter(trial.device());
  trial.check(expect_one(counter));
  gpulift::Arm arm{.name = "other", .make = [] {
                     return [](gpulift::StreamHandle stream) {
                       auto* const outside = reinterpret_cast<std::uint64_t*>(8);  // no allocation is there
                       gpulift::launch_empty(outside, stream);
                     };
                   }};
  trial.compare({spinning_arm("baseline", counter, 20'000), std::move(arm)});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What becomes of a kernel that writes out of bounds?",
    .expectation = "An error; the next case gets a new process and a new context.",
    .arms = {"baseline", "other"},
    .quick = {{}},
    .run = run,
};
