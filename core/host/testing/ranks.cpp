#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "core/cuda/error.hpp"
#include "core/host/testing/busy_work.hpp"

namespace {

using namespace gpulift::testing_techniques;

/// As a collective does whose other rank is gone.
void wait_for_ever() {
  for (;;) pause();
}

/// A step that goes wrong in rank 1 alone, and only after some that went well.
void take_step(const gpulift::Group& group, const std::string& manner, int step) {
  constexpr int kGoesWrong = 5;
  if (step < kGoesWrong) return;
  if (manner == "hangs" && group.rank == 1) wait_for_ever();
  if (manner != "dies") return;
  if (group.rank == 1) raise(SIGKILL);
  wait_for_ever();
}

gpulift::Step make_step(gpulift::Trial& trial, const Output& output, const std::string& manner) {
  using namespace std::chrono_literals;
  const gpulift::Group group = trial.group();
  const std::string shared = trial.from_first([&] { return "from rank " + std::to_string(group.rank); });
  if (manner == "exhausted" && group.rank == 1) throw gpulift::OutOfMemory("rank 1 asked for too much");
  if (manner == "late" && group.rank == 1) std::this_thread::sleep_for(300ms);
  if (shared != "from rank 0" || group.ranks != 2) throw std::runtime_error("no group: " + shared);
  return [output, group, manner, step = 0](gpulift::StreamHandle) mutable {
    take_step(group, manner, step++);
    *output = busy_work(1, 100000) == 0 || (manner == "differs" && group.rank == 1) ? 0 : 42;
  };
}

void run(gpulift::Trial& trial) {
  const Output output = make_output();
  const std::string manner = trial.word("rank_1");
  gpulift::Arm arm{.name = "other",
                   .make = [&trial, output, manner]() -> gpulift::Work { return make_step(trial, output, manner); }};
  arm.worker = gpulift::Worker{.environment = {{"NCCL_ALGO", "Ring"}}, .ranks = 2};
  compare_with(trial, std::move(arm), output);
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What becomes of an arm of two ranks when one of them goes wrong?",
    .expectation = "The other is ended at once, and the one that went wrong is named.",
    .gpus = 0,
    .arms = {"baseline", "other"},
    .sweep = {{"rank_1", {"fine", "late", "dies", "hangs", "differs", "exhausted"}}},
    .quick = {{{"rank_1", "fine"}}},
    .run = run,
};
