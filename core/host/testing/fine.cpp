#include "core/host/testing/busy_work.hpp"

namespace {

using namespace gpulift::testing_techniques;

constexpr int kMostRounds = 1000000;

void run(gpulift::Trial& trial) {
  const auto rounds = static_cast<int>(trial.number("rounds"));
  if (rounds > kMostRounds) throw std::out_of_range("more rounds than there may be");
  const Output output = make_output();
  trial.check(expect_42(output));
  trial.cost({.items = 1});
  trial.note("seed", std::to_string(trial.seed()));
  trial.note("recalled", trial.recall("seed").value_or("nothing"));
  trial.compare({working_arm("baseline", output, rounds), working_arm("twice", output, 2 * rounds)});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "Does twice the work take twice the time?",
    .expectation = "Time is proportional to rounds: ratio 2.",
    .gpus = 0,
    .arms = {"baseline", "twice"},
    .sweep = {{"rounds", {1000, 4000}}},
    .quick = {{{"rounds", 1000}}},
    .run = run,
};
