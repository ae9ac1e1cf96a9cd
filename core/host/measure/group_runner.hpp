#pragma once
// Arms in child processes: one, or one for each rank of a group. Each answers in JSON lines: that it has started, what
// its check found, then windows. A child is this program (worker.hpp), or for a python_arm() the interpreter of its
// side with core/python/gpulift_worker.py.

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/harness/json.hpp"
#include "core/harness/process.hpp"
#include "core/harness/technique.hpp"
#include "core/harness/window.hpp"
#include "core/host/record/job.hpp"

namespace gpulift {

/// What the children of an arm are started with and asked first.
struct WorkerStart {
  Job job;               // its module is that of the arm's side
  RunSettings settings;  // its plant is 0 for an arm that is not slowed down
  std::string python;    // the interpreter of the arm's side; a file, or a name that is looked up in PATH
  bool has_device;       // whether the arm may use the GPUs that the settings name
  int port = 0;          // where several ranks meet
  nlohmann::ordered_json earlier = {};  // the arm's metrics of an earlier launch; null: none
};

/// A port of this machine that nobody uses now: 0 where there is none.
int free_port();

/// What the children said once they had checked their arm. Of a group the worst error, the largest peak, and the rest
/// of rank 0.
struct Hello {
  std::optional<double> check_error = {};  // none: the arm has no check of its own
  std::size_t worst_rank = 0;              // whose error that is
  std::optional<double> value = {};        // to be held against that of other arms
  std::optional<double> tolerance = {};
  std::size_t peak_host_bytes = 0;
  bool has_events = false;                     // windows can be timed by device events
  bool has_before = false;                     // windows are of one step
  bool rests = false;                          // memory is given up between windows
  std::map<std::string, double> spent_s = {};  // of the check, by part: "reference", "compile"
  Metrics metrics = {};
  std::map<std::string, std::string> notes = {};
  std::map<std::string, std::string> versions = {};
  std::optional<Cost> cost = {};
  std::optional<Precondition> precondition = {};  // its name and limit
  nlohmann::ordered_json scratch = {};            // facts of its disk; null: no folder was asked for
};

/// One window of all ranks on the one steady clock of the machine: from the first start to the last end, the device
/// time of the slowest, the processor time of all. Needs one window at least.
Window slowest(std::span<const Window> ranks);

class WorkerFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws WorkerFailed when a child ends, falls silent or reports an error; the others are ended with the object.
class GroupRunner : public ArmRunner {
 public:
  /// Starts the children, which make nothing of their arm yet. Throws Skipped where they cannot be started.
  GroupRunner(const WorkerStart& start, const Arm& arm);
  /// Waits a little for what stands for workers elsewhere to end those: the next ones need their memory.
  ~GroupRunner() override;

  /// Waits until they have loaded what they need and found each other. Throws Skipped where they say that they cannot.
  void await_start();
  /// After await_start(): they make and check their arm. Throws Skipped where they say that they cannot run.
  void check();
  const Hello& hello() const { return hello_; }
  /// How windows are taken: kHost unless told otherwise, or kUnheld where the children have device events.
  void judge_by(Clock clock) { clock_ = clock; }
  Window run(std::int64_t lead_in_steps, std::int64_t steps) override;
  bool rests() const override { return hello_.rests; }
  void wake() override;
  void rest() override;
  std::int64_t max_steps() const override { return hello_.has_before ? 1 : ArmRunner::max_steps(); }
  bool begins_afresh() const override { return hello_.has_before; }
  double clock_error_s() const override { return clock_error_s_; }
  std::int64_t least_lead_in() const override { return ranks_.size() > 1 ? 1 : 0; }
  std::optional<double> launches_per_step() override;
  /// The children end by themselves after it, since a profiler may lose what it saw of one that is killed.
  void profile_step() override;
  std::optional<double> planted() const override { return planted_; }

 private:
  using Json = nlohmann::ordered_json;

  void start_rank(const WorkerStart& start, const Arm& arm, int rank);
  bool is_given() const { return !places_.is_null(); }
  std::vector<Json> ask_all(const Json& question);
  void change(const Json& asked);  // of an arm that rests
  std::vector<Json> answers_of_all();
  bool relay(std::size_t from, const Json& answer);
  std::string name_of(std::size_t rank) const;
  std::string names_of(const std::vector<std::size_t>& ranks) const;
  [[noreturn]] void fail(std::size_t rank, const std::string& what);
  [[noreturn]] void blame_for(std::size_t rank, const std::string& error, std::vector<std::size_t> others);

  std::string arm_;
  double timeout_s_;
  Json places_;  // of the ranks that a launcher started; null: it started none of these
  std::vector<std::unique_ptr<Process>> ranks_;
  std::vector<Json> started_;  // what each said when it had
  Hello hello_;
  Clock clock_ = Clock::kHost;
  std::optional<double> planted_;
  double clock_error_s_ = 0;
};

}  // namespace gpulift
