#include "core/harness/window.hpp"
#include "core/host/testing/counted_spin.hpp"

namespace {

using namespace gpulift::testing_techniques;

constexpr double kHostWork_s = 3e-3;
constexpr std::int64_t kCycles = 1'000'000;  // half a millisecond at full clock

/// Steps that the host bounds: the device idles in most of each.
gpulift::Arm paced_arm(const std::string& name, const Counter& counter, gpulift::Clock clock) {
  gpulift::Arm arm = spinning_arm(name, counter, kCycles);
  arm.clock = clock;
  arm.make = [make = arm.make] {
    return [step = make().step()](gpulift::StreamHandle stream) {
      const double start_s = gpulift::now_s();
      while (gpulift::now_s() - start_s < kHostWork_s) {
      }
      step(stream);
    };
  };
  return arm;
}

void run(gpulift::Trial& trial) {
  const Counter counter = make_counter(trial.device());
  const bool events = trial.word("beside") == "events";
  trial.check(expect_one(counter));
  trial.compare({paced_arm("baseline", counter, gpulift::Clock::kUnheld),
                 paced_arm("other", counter, events ? gpulift::Clock::kUnheld : gpulift::Clock::kHost)});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "Is a step that the host bounds as long as it is in a loop of steps?",
    .expectation = "By events 3 ms, by the wall clock the kernel behind the last step of a window besides.",
    .arms = {"baseline", "other"},
    .sweep = {{"beside", {"events", "wall_clock"}}},
    .quick = {{}},
    .run = run,
};
