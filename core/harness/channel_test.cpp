#include "channel.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <iostream>
#include <sstream>
#include <system_error>

#include "process.hpp"

namespace gpulift {
namespace {

/// Standard input made of the given text for as long as it lives.
class Input {
 public:
  explicit Input(const std::string& text) : stream_(text), before_(std::cin.rdbuf(stream_.rdbuf())) {}
  ~Input() {
    std::cin.rdbuf(before_);
    std::cin.clear();
  }
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

 private:
  std::istringstream stream_;
  std::streambuf* before_;
};

TEST(Channel, ReceivesLinesUntilTheParentCloses) {
  const Input input("{\"a\":1}\n[2]\n");
  Channel channel;
  EXPECT_EQ(channel.receive()->at("a"), 1);
  EXPECT_EQ(channel.receive()->at(0), 2);
  EXPECT_FALSE(channel.receive());
}

TEST(Channel, ALineThatIsNotJsonIsAnError) {
  const Input input("nonsense\n");
  EXPECT_THROW(Channel().receive(), nlohmann::json::exception);
}

/// The reply descriptor of a child, here in this process.
class ChannelSend : public testing::Test {
 protected:
  ChannelSend() {
    EXPECT_EQ(pipe(ends_.data()), 0);
    read_ = fcntl(ends_[0], F_DUPFD, 10);
    const int write = fcntl(ends_[1], F_DUPFD, 10);
    close(ends_[0]);
    close(ends_[1]);
    EXPECT_EQ(dup2(write, Process::kReplyDescriptor), Process::kReplyDescriptor);
    close(write);
  }
  ~ChannelSend() override {
    close(Process::kReplyDescriptor);
    close(read_);
  }

  std::array<int, 2> ends_{};
  int read_ = -1;
};

TEST_F(ChannelSend, WritesOneLineForEachMessage) {
  Channel().send({{"event", "started"}});
  std::array<char, 64> text{};
  const ssize_t got = read(read_, text.data(), text.size());
  EXPECT_EQ(std::string(text.data(), static_cast<std::size_t>(got)), "{\"event\":\"started\"}\n");
}

TEST_F(ChannelSend, AParentThatHasGoneIsAnError) {
  signal(SIGPIPE, SIG_IGN);
  close(read_);
  EXPECT_THROW(Channel().send({{"event", "started"}}), std::system_error);
  signal(SIGPIPE, SIG_DFL);
}

TEST(DieWithParent, EndsTheChildOfAKilledProcess) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  // The orphan comes to us, so that we see it end.
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    if (fork() == 0) {
      die_with_parent();
      const pid_t self = getpid();
      if (write(ends[1], &self, sizeof(self)) != sizeof(self)) _exit(1);
    }
    for (;;) pause();
  }
  pid_t child = 0;
  ASSERT_EQ(read(ends[0], &child, sizeof(child)), static_cast<ssize_t>(sizeof(child)));
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace gpulift
