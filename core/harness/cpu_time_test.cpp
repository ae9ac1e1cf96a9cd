#include "cpu_time.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <ctime>
#include <functional>
#include <optional>
#include <stdexcept>
#include <thread>

#include "host_runner.hpp"

namespace gpulift {
namespace {

constexpr double kWork_s = 0.2;
constexpr double kSlack_s = 0.1;  // ticks, and what the test itself takes

/// Keeps the calling thread busy for so much processor time of its own.
void work() {
  const auto used_s = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  };
  for (const double end_s = used_s() + kWork_s; used_s() < end_s;) {
  }
}

/// A child process that works and then waits to be ended, at the latest with the thread that made it. Its work is done
/// when the constructor returns.
class BusyChild {
 public:
  explicit BusyChild(const std::function<void()>& its_work) {
    std::array<int, 2> done{};
    if (pipe(done.data()) != 0) throw std::runtime_error("no pipe");
    process_ = fork();
    if (process_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      its_work();
      close(done[0]);
      if (write(done[1], "d", 1) == 1) pause();
      _exit(0);
    }
    close(done[1]);
    char read_one = 0;
    const bool worked = process_ > 0 && read(done[0], &read_one, 1) == 1;
    close(done[0]);
    if (!worked) throw std::runtime_error("the child did not work");
  }
  ~BusyChild() { end(); }
  BusyChild(const BusyChild&) = delete;
  BusyChild& operator=(const BusyChild&) = delete;

  /// Ends it and does not wait for it.
  void kill_it() const {
    kill(process_, SIGKILL);
    siginfo_t none{};
    waitid(P_PID, static_cast<id_t>(process_), &none, WEXITED | WNOWAIT);
  }
  void end() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    process_ = -1;
  }

 private:
  pid_t process_ = -1;
};

TEST(CpuTime, IsThatOfAllThreadsAlsoOfThoseThatEnded) {
  const CpuMeter meter(false);
  std::jthread(work).join();
  work();
  EXPECT_NEAR(meter.used_s(), 2 * kWork_s, kSlack_s);
}

TEST(CpuTime, WaitingUsesNone) {
  const CpuMeter meter(true);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_NEAR(meter.used_s(), 0, kSlack_s);
}

TEST(CpuTime, ChildrenAreOnlyCountedWhenAskedFor) {
  const CpuMeter meter(false);
  const BusyChild child(work);
  EXPECT_NEAR(meter.used_s(), 0, kSlack_s);
}

TEST(CpuTime, AChildCountsTheSameAliveAndEndedAndWaitedFor) {
  const CpuMeter meter(true);
  BusyChild child(work);
  EXPECT_NEAR(meter.used_s(), kWork_s, kSlack_s) << "alive";
  child.kill_it();
  EXPECT_NEAR(meter.used_s(), kWork_s, kSlack_s) << "ended";
  child.end();
  EXPECT_NEAR(meter.used_s(), kWork_s, kSlack_s) << "waited for";
}

TEST(CpuTime, WhatAChildUsedBeforeDoesNotCount) {
  BusyChild child(work);
  const CpuMeter meter(true);
  child.end();
  EXPECT_NEAR(meter.used_s(), 0, kSlack_s);
}

TEST(CpuTime, WhatAChildUsedBeforeARestartDoesNotCount) {
  BusyChild ended(work);
  BusyChild alive(work);
  CpuMeter meter(true);
  work();
  meter.restart();
  EXPECT_NEAR(meter.used_s(), 0, kSlack_s) << "asked again";
  ended.end();
  meter.restart();
  EXPECT_NEAR(meter.used_s(), 0, kSlack_s) << "looked for anew, since one of them has ended";
  alive.end();
  EXPECT_NEAR(meter.used_s(), 0, kSlack_s) << "and ended since";
}

TEST(CpuTime, AChildThatBeganBeforeARestartAndAfterTheLastLookCountsWhole) {
  CpuMeter meter(true);
  const BusyChild child(work);
  meter.restart();
  EXPECT_NEAR(meter.used_s(), kWork_s, kSlack_s);
}

TEST(CpuTime, AChildOfAnotherThreadCounts) {
  const CpuMeter meter(true);
  double with_it_s = 0;
  std::jthread([&] {
    const BusyChild child(work);
    with_it_s = meter.used_s();
  }).join();
  EXPECT_NEAR(with_it_s, kWork_s, kSlack_s);
}

TEST(CpuTime, ChildrenOfAChildCountAliveAndWaitedFor) {
  const CpuMeter meter(true);
  const BusyChild child([] {
    static const BusyChild alive(work);  // as long as the child
    BusyChild(work).end();
  });
  EXPECT_NEAR(meter.used_s(), 2 * kWork_s, kSlack_s);
}

TEST(CpuTime, OfAWindowIsThatOfItsStepsAlone) {
  HostRunner plain([](StreamHandle) { work(); }, HostRunner::Counted::kWithChildren);
  EXPECT_NEAR(plain.run(/*lead_in_steps=*/1, /*steps=*/1).cpu_s.value(), kWork_s, kSlack_s);
  std::optional<BusyChild> started;
  Work afresh([](StreamHandle) { work(); });
  afresh.before([&] { started.emplace(work); }).rest([&] { started.reset(); });
  HostRunner cold(afresh, HostRunner::Counted::kWithChildren);
  EXPECT_NEAR(cold.run(/*lead_in_steps=*/0, /*steps=*/1).cpu_s.value(), kWork_s, kSlack_s) << "before began a process";
}

}  // namespace
}  // namespace gpulift
