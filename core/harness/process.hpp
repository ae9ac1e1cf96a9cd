#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gpulift {

/// How a child process ended.
struct Ended {
  std::optional<int> exit_code;
  std::optional<int> signal;
  /// "exit code 3", "signal 11 (Segmentation fault)".
  std::string text() const;
};

/// A child process that is spoken to in lines: ours go to its standard input, its lines come from its file descriptor
/// kReplyDescriptor, so that whatever it prints cannot break the protocol. It dies with its parent, and is killed when
/// the object goes.
class Process {
 public:
  static constexpr int kReplyDescriptor = 3;

  enum class Errors { kPassThrough, kDiscard };

  /// Starts argv[0], a file or a name that is looked up in PATH, with our environment and the given additions. Its
  /// standard output is discarded. Throws std::system_error when it cannot be started.
  Process(const std::vector<std::string>& argv, const std::map<std::string, std::string>& environment,
          Errors errors = Errors::kPassThrough);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  /// False when the child no longer reads.
  bool send(const std::string& line);

  enum class Read { kLine, kTimeout, kClosed };
  /// Waits at most `timeout_s` for the next whole line.
  Read receive(std::string& line, double timeout_s);
  /// The same of several children: of the first that has a line, or has closed its end. `who` is its place.
  static Read receive_any(std::span<Process* const> children, std::size_t& who, std::string& line, double timeout_s);

  /// There are no more lines for it.
  void close_input();
  void kill();
  /// Waits for the end, after closing its input.
  Ended wait();

 private:
  bool take_line(std::string& line);
  /// False when the child has closed its end.
  bool read_more();

  pid_t pid_ = -1;
  int input_ = -1;
  int output_ = -1;
  std::string pending_;
};

/// Absolute path of the running program.
std::string own_program();

}  // namespace gpulift
