#include "core/host/testing/counted_spin.hpp"

namespace {

using namespace gpulift::testing_techniques;

void run(gpulift::Trial& trial) {
  gpulift::Device& device = trial.device();
  const Counter counter = make_counter(device);
  trial.check(expect_one(counter));
  gpulift::Arm arm{.name = "other", .make = [&device, counter]() -> gpulift::Step {
                     const gpulift::DeviceBuffer<char> too_much(device, 2 * device.memory_bytes());
                     return [counter](gpulift::StreamHandle stream) { gpulift::launch_empty(counter->data(), stream); };
                   }};
  trial.compare({spinning_arm("baseline", counter, 20'000), std::move(arm)});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What becomes of a case that asks for more memory than the device has?",
    .expectation = "It is skipped; the run goes on.",
    .arms = {"baseline", "other"},
    .quick = {{}},
    .run = run,
};
