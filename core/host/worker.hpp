#pragma once
// A worker arm: an arm in a child process of its own that answers windows over pipes, one JSON line each way. For
// libraries that must be preloaded, variables that are read once, and what only Python can do. The child is this
// program, or for a python_arm() the interpreter of its side with core/python/gpulift_worker.py.

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "core/harness/process.hpp"
#include "core/harness/technique.hpp"
#include "core/harness/window.hpp"
#include "job.hpp"

namespace gpulift {

/// What the child of an arm is started with and asked first.
struct WorkerStart {
  Job job;               // its module is that of the arm's side
  RunSettings settings;  // its plant is 0 for an arm that is not slowed down
  std::string python;    // the interpreter of the arm's side; a file, or a name that is looked up in PATH
  bool has_device;       // whether a Python arm may use the GPU that the settings name
};

/// Our side. Throws WorkerFailed when the child ends, falls silent or reports an error.
class WorkerRunner : public ArmRunner {
 public:
  /// Starts the child; it checks its arm before it answers.
  WorkerRunner(const WorkerStart& start, const Arm& arm);

  /// The child's first answer: "check_error", "peak_host_bytes", "has_events" (windows can be timed by device events),
  /// perhaps "notes"; or "skipped" and "remedy", and then there is nothing to run.
  const nlohmann::ordered_json& hello() const { return hello_; }
  /// How windows are taken: kHost unless told otherwise, or kUnheld where the child has device events.
  void judge_by(Clock clock) { clock_ = clock; }
  Window run(std::int64_t lead_in_steps, std::int64_t steps) override;
  std::optional<double> launches_per_step() override;
  std::optional<double> planted() const override { return planted_; }

 private:
  void start_own(const WorkerStart& start, const Arm& arm);
  void start_python(const WorkerStart& start, const Arm& arm);
  nlohmann::ordered_json ask(const nlohmann::ordered_json& question);

  std::string arm_;
  double timeout_s_;
  std::unique_ptr<Process> process_;  // null: what the arm needs is not installed
  nlohmann::ordered_json hello_;
  Clock clock_ = Clock::kHost;
  std::optional<double> planted_;
};

class WorkerFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A child's side of the question whether a library can be preloaded: 0 if it is in this process, else 1.
int answer_preloaded(const std::string& library);

/// The child's side: loads the job's module, checks the arm, and answers until its input closes. Returns its exit code.
int serve_worker();

}  // namespace gpulift
