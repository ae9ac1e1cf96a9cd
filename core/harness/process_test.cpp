#include "process.hpp"

#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <system_error>

#include "window.hpp"

namespace gpulift {
namespace {

constexpr double kPatience_s = 20;  // far longer than any shell takes

class ProcessTest : public testing::Test {
 protected:
  ProcessTest() { signal(SIGPIPE, SIG_IGN); }
  ~ProcessTest() override { signal(SIGPIPE, SIG_DFL); }

  static std::vector<std::string> shell(const std::string& script) { return {"/bin/sh", "-c", script}; }

  static std::string line_of(Process& process) {
    std::string line;
    return process.receive(line, kPatience_s) == Process::Read::kLine ? line : "(no line)";
  }
};

TEST_F(ProcessTest, LinesGoThereAndBack) {
  Process echo(shell("while read line; do echo \"got $line\" >&3; done"), {});
  EXPECT_TRUE(echo.send("one"));
  EXPECT_EQ(line_of(echo), "got one");
  EXPECT_TRUE(echo.send("two"));
  EXPECT_TRUE(echo.send("three"));
  EXPECT_EQ(line_of(echo), "got two");
  EXPECT_EQ(line_of(echo), "got three");
  EXPECT_EQ(echo.wait().exit_code, 0);
}

TEST_F(ProcessTest, LongLinesComeWhole) {
  Process echo(shell("read line; echo \"$line\" >&3"), {});
  const std::string text(1 << 20, 'x');
  EXPECT_TRUE(echo.send(text));
  EXPECT_EQ(line_of(echo), text);
}

TEST_F(ProcessTest, WhatTheChildPrintsCannotBreakTheProtocol) {
  Process noisy(shell("echo noise; echo answer >&3"), {});
  EXPECT_EQ(line_of(noisy), "answer");
}

TEST_F(ProcessTest, ALineThatNeverEndsIsNoLine) {
  Process rude(shell("printf 'half a line' >&3"), {});
  std::string line;
  EXPECT_EQ(rude.receive(line, kPatience_s), Process::Read::kClosed);
}

TEST_F(ProcessTest, SilenceIsATimeout) {
  Process silent(shell("read line"), {});
  std::string line;
  const double start_s = now_s();
  EXPECT_EQ(silent.receive(line, 0.05), Process::Read::kTimeout);
  EXPECT_GE(now_s() - start_s, 0.05);
}

TEST_F(ProcessTest, AnEndlessTimeoutIsNoError) {
  Process prompt(shell("echo answer >&3"), {});
  std::string line;
  EXPECT_EQ(prompt.receive(line, 1e300), Process::Read::kLine);
}

TEST_F(ProcessTest, TheFirstOfSeveralThatHasALineOrEndsIsTold) {
  Process silent(shell("exec sleep 600"), {});
  Process talking(shell("echo hello >&3; exec sleep 600"), {});
  Process* const two[] = {&silent, &talking};
  std::size_t who = 99;
  std::string line;
  EXPECT_EQ(Process::receive_any(two, who, line, kPatience_s), Process::Read::kLine);
  EXPECT_EQ(who, 1U);
  EXPECT_EQ(line, "hello");
  EXPECT_EQ(Process::receive_any(two, who, line, 0.05), Process::Read::kTimeout);
  silent.kill();
  EXPECT_EQ(Process::receive_any(two, who, line, kPatience_s), Process::Read::kClosed);
  EXPECT_EQ(who, 0U);
}

TEST_F(ProcessTest, TellsTheExitCode) {
  Process failing(shell("exit 3"), {});
  std::string line;
  EXPECT_EQ(failing.receive(line, kPatience_s), Process::Read::kClosed);
  const Ended ended = failing.wait();
  EXPECT_EQ(ended.exit_code, 3);
  EXPECT_FALSE(ended.signal);
  EXPECT_EQ(ended.text(), "exit code 3");
}

TEST_F(ProcessTest, TellsTheSignal) {
  Process crashing(shell("kill -SEGV $$"), {});
  std::string line;
  EXPECT_EQ(crashing.receive(line, kPatience_s), Process::Read::kClosed);
  const Ended ended = crashing.wait();
  EXPECT_EQ(ended.signal, SIGSEGV);
  EXPECT_EQ(ended.text(), "signal 11 (Segmentation fault)");
}

TEST_F(ProcessTest, KillsAChildThatIgnoresEverythingElse) {
  Process stubborn(shell("trap '' TERM INT HUP; echo ready >&3; while :; do sleep 1; done"), {});
  EXPECT_EQ(line_of(stubborn), "ready");
  stubborn.kill();
  EXPECT_EQ(stubborn.wait().signal, SIGKILL);
}

TEST_F(ProcessTest, NoChildOutlivesItsObject) {
  pid_t pid = 0;
  {
    Process child(shell("echo $$ >&3; while :; do sleep 1; done"), {});
    pid = std::stoi(line_of(child));
    EXPECT_EQ(::kill(pid, 0), 0);
  }
  EXPECT_EQ(::kill(pid, 0), -1);
  EXPECT_EQ(errno, ESRCH);
}

TEST_F(ProcessTest, SendingToOneThatHasGoneSaysSo) {
  Process gone(shell("exit 0"), {});
  std::string line;
  EXPECT_EQ(gone.receive(line, kPatience_s), Process::Read::kClosed);
  EXPECT_FALSE(gone.send(std::string(1 << 20, 'x')));
}

TEST_F(ProcessTest, AddsToTheEnvironmentAndReplacesInIt) {
  setenv("GPULIFT_PROCESS_TEST", "ours", 1);
  setenv("GPULIFT_PROCESS_TEST_KEPT", "kept", 1);
  Process child(shell("echo \"$GPULIFT_PROCESS_TEST $GPULIFT_PROCESS_TEST_KEPT\" >&3"),
                {{"GPULIFT_PROCESS_TEST", "theirs"}});
  EXPECT_EQ(line_of(child), "theirs kept");
}

TEST_F(ProcessTest, AChildGetsNoDescriptorsOfAnother) {
  const auto list = shell("set -- /proc/$$/fd/*; echo $# >&3");  // no pipeline: it has descriptors of its own
  Process before(list, {});
  const std::string alone = line_of(before);
  before.wait();
  const Process other(shell("read line"), {});
  Process after(list, {});
  EXPECT_EQ(line_of(after), alone);
}

TEST_F(ProcessTest, AProgramThatDoesNotExistIsAnError) {
  EXPECT_THROW(Process({"/no/such/program"}, {}), std::system_error);
}

TEST(OwnProgram, IsThisTest) { EXPECT_EQ(std::filesystem::path(own_program()).filename(), "test.harness.units"); }

}  // namespace
}  // namespace gpulift
