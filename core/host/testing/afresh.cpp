#include "core/host/testing/busy_work.hpp"

namespace {

using namespace gpulift::testing_techniques;

/// What an arm leaves behind, and what the work around its windows does about it.
struct State {
  int prepared = 0;
  int steps_since = 0;
  bool working_on = false;
};

gpulift::Work make_work(const Output& output, const std::string& cold) {
  auto state = std::make_shared<State>();
  gpulift::Work work([state, output](gpulift::StreamHandle) {
    const bool alone = state->prepared > 0 && ++state->steps_since == 1 && !state->working_on;
    state->working_on = true;
    *output = busy_work(1, 100000) != 0 && alone ? 42 : 0;
    if (*output == 0) throw std::runtime_error("a step that began in no fresh state");
  });
  work.before([state] {
    ++state->prepared;
    state->steps_since = 0;
  });
  work.rest([state] { state->working_on = false; });
  work.precondition({.name = "resident_share",
                     .look = [state, cold]() -> std::optional<double> {
                       if (cold == "untold") return std::nullopt;
                       if (cold == "never") return 1.0;
                       return cold == "at_first" && state->prepared > 4 ? 0.5 : 0.001;
                     },
                     .most = 0.01});
  return work;
}

void run(gpulift::Trial& trial) {
  const Output output = make_output();
  const std::string cold = trial.word("cold");
  gpulift::Arm arm{.name = "other", .make = [output, cold]() -> gpulift::Work { return make_work(output, cold); }};
  arm.clock = gpulift::Clock::kHost;
  if (trial.word("where") == "worker") arm.worker = gpulift::Worker{};
  compare_with(trial, std::move(arm), output);
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "Does each window begin in the state that its arm makes, and is it looked at?",
    .expectation = "Yes: one step after each call of before(), and nothing works on after rest().",
    .gpus = 0,
    .arms = {"baseline", "other"},
    .sweep = {{"where", {"here", "worker"}}, {"cold", {"always", "at_first", "never", "untold"}}},
    .quick = {{{"cold", "always"}}},
    .run = run,
};
