#include "core/host/testing/counted_spin.hpp"

namespace {

using namespace gpulift::testing_techniques;

void run(gpulift::Trial& trial) {
  gpulift::Device& device = trial.device();
  const Counter counter = make_counter(device);
  trial.check(expect_one(counter));
  const auto take = [&device, counter](std::size_t quarters) {
    return [&device, counter, quarters]() -> gpulift::Step {
      const std::size_t quarter_bytes = device.memory_bytes() / 4;
      const gpulift::DeviceBuffer<char> most(device, 3 * quarter_bytes);
      const gpulift::DeviceBuffer<char> rest(device, (quarters - 3) * quarter_bytes + 1);
      return [counter](gpulift::StreamHandle stream) { gpulift::launch_empty(counter->data(), stream); };
    };
  };
  trial.compare({spinning_arm("baseline", counter, 20'000),
                 {.name = "too_much", .make = take(8)},
                 {.name = "other", .make = take(3)}});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What becomes of an arm that asks for more memory than the device has?",
    .expectation = "It is skipped, and the next one has the memory that it took.",
    .arms = {"baseline", "too_much", "other"},
    .quick = {{}},
    .run = run,
};
