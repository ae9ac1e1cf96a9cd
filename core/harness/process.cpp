#include "process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "window.hpp"

namespace gpulift {
namespace {

constexpr double kLongestPoll_s = 1e6;  // poll takes milliseconds in an int; waiting goes on after it

void check_errno(int status, const char* what) {
  if (status != 0) throw std::system_error(status, std::generic_category(), what);
}

/// Both ends close on exec; the child gets its own by dup2.
std::array<int, 2> make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) check_errno(errno, "pipe");
  return ends;
}

class FileActions {
 public:
  FileActions() { check_errno(posix_spawn_file_actions_init(&actions_), "posix_spawn_file_actions_init"); }
  ~FileActions() { posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  void duplicate(int from, int to) {
    check_errno(posix_spawn_file_actions_adddup2(&actions_, from, to), "posix_spawn_file_actions_adddup2");
  }
  void open_null(int descriptor) {
    check_errno(posix_spawn_file_actions_addopen(&actions_, descriptor, "/dev/null", O_WRONLY, 0), "addopen");
  }
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

std::vector<std::string> merged_environment(const std::map<std::string, std::string>& additions) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (additions.find(text.substr(0, text.find('='))) == additions.end()) merged.push_back(text);
  }
  for (const auto& [name, value] : additions) merged.push_back(name + "=" + value);
  return merged;
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const auto& text : texts) result.push_back(const_cast<char*>(text.c_str()));  // NOLINT: the POSIX signature
  result.push_back(nullptr);
  return result;
}

}  // namespace

std::string Ended::text() const {
  if (signal) return "signal " + std::to_string(*signal) + " (" + strsignal(*signal) + ")";
  return "exit code " + std::to_string(exit_code.value_or(-1));
}

Process::Process(const std::vector<std::string>& argv, const std::map<std::string, std::string>& environment,
                 Errors errors) {
  const auto to_child = make_pipe();
  const auto from_child = make_pipe();
  // dup2 onto the same number would keep close-on-exec: move the write end out of the way of the reply descriptor.
  const int reply = fcntl(from_child[1], F_DUPFD_CLOEXEC, kReplyDescriptor + 1);
  close(from_child[1]);
  FileActions actions;
  actions.duplicate(to_child[0], STDIN_FILENO);
  actions.open_null(STDOUT_FILENO);
  if (errors == Errors::kDiscard) actions.open_null(STDERR_FILENO);
  actions.duplicate(reply, kReplyDescriptor);
  const auto variables = merged_environment(environment);
  const int status =
      posix_spawnp(&pid_, argv[0].c_str(), actions.get(), nullptr, pointers(argv).data(), pointers(variables).data());
  close(to_child[0]);
  close(reply);
  input_ = to_child[1];
  output_ = from_child[0];
  if (status != 0) {
    close(input_);
    close(output_);
    check_errno(status, "cannot start a child process");
  }
}

Process::~Process() {
  if (pid_ > 0) {
    kill();
    wait();
  }
  if (input_ >= 0) close(input_);
  close(output_);
}

bool Process::send(const std::string& line) {
  const std::string text = line + "\n";
  std::size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t written = write(input_, text.data() + sent, text.size() - sent);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    sent += static_cast<std::size_t>(written);
  }
  return true;
}

Process::Read Process::receive(std::string& line, double timeout_s) {
  Process* const only = this;
  std::size_t who = 0;
  return receive_any({&only, 1}, who, line, timeout_s);
}

Process::Read Process::receive_any(std::span<Process* const> children, std::size_t& who, std::string& line,
                                   double timeout_s) {
  const double until_s = now_s() + timeout_s;
  std::vector<pollfd> waiting;
  for (const Process* child : children) waiting.push_back({child->output_, POLLIN, 0});
  for (;;) {
    for (who = 0; who < children.size(); ++who) {
      if (children[who]->take_line(line)) return Read::kLine;
    }
    const double left_s = until_s - now_s();
    if (left_s <= 0) return Read::kTimeout;
    const int ready =
        poll(waiting.data(), waiting.size(), static_cast<int>(std::min(left_s, kLongestPoll_s) * 1e3) + 1);
    if (ready < 0 && errno == EINTR) return Read::kTimeout;  // a signal: the caller decides
    for (who = 0; who < children.size(); ++who) {
      if (waiting[who].revents != 0 && !children[who]->read_more()) return Read::kClosed;
    }
  }
}

bool Process::take_line(std::string& line) {
  const auto end = pending_.find('\n');
  if (end == std::string::npos) return false;
  line = pending_.substr(0, end);
  pending_.erase(0, end + 1);
  return true;
}

bool Process::read_more() {
  std::array<char, 65536> bytes{};
  const ssize_t got = read(output_, bytes.data(), bytes.size());
  if (got < 0 && errno == EINTR) return true;
  if (got > 0) pending_.append(bytes.data(), static_cast<std::size_t>(got));
  return got > 0;
}

void Process::kill() {
  if (pid_ > 0) ::kill(pid_, SIGKILL);
}

void Process::close_input() {
  if (input_ >= 0) close(input_);
  input_ = -1;
}

Ended Process::wait() {
  close_input();
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  Ended ended;
  if (WIFEXITED(status)) ended.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) ended.signal = WTERMSIG(status);
  return ended;
}

std::string own_program() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

}  // namespace gpulift
