#pragma once
// All that a technique file may use: what it asks, which cases it has, what a step costs, what "the same result"
// means, and its arms. It never sees a clock, a loop count, a format or a flag.

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

struct CUstream_st;  // the CUDA runtime's stream, so that this header needs no CUDA

namespace gpulift {

class Device;  // core/cuda/device.hpp

/// The same type as `cudaStream_t`. Null for techniques that need no device.
using StreamHandle = CUstream_st*;

/// Enqueues one unit of work on the stream that it is given; never synchronises, never allocates. An arm whose very
/// subject is allocation, synchronisation or host work may do both, and says so with Clock::kHost, or Clock::kUnheld.
using Step = std::function<void(StreamHandle)>;

/// What must hold when a window begins: a cold arm that was not cold is `failed`, not fast.
struct Precondition {
  std::string name;                             // with its unit: "resident_share"
  std::function<std::optional<double>()> look;  // none: it cannot be told here, and the arm is skipped
  double most = 0;                              // holds when look() <= most
};

/// What an arm makes: a step, and what goes around its windows, untimed. Most are a step and nothing else: a lambda
/// converts.
class Work {
 public:
  template <std::invocable<StreamHandle> F>
  Work(F step) : step_(std::move(step)) {}  // NOLINT(google-explicit-constructor): see above

  /// Called ahead of each window, which is then one step with no lead-in: evicts files, removes the last checkpoint.
  Work& before(std::function<void()> action) {
    before_ = std::move(action);
    return *this;
  }
  /// Called after each window: returns when nothing of the arm works on any more, so that a loader's threads or an
  /// asynchronous save do not run on into the next arm's window.
  Work& rest(std::function<void()> action) {
    rest_ = std::move(action);
    return *this;
  }
  /// Looked at after `before`, ahead of each window, and recorded.
  Work& precondition(Precondition required) {
    precondition_ = std::move(required);
    return *this;
  }

  const Step& step() const { return step_; }
  bool has_before() const { return before_ != nullptr; }
  void do_before() const {
    if (before_) before_();
  }
  void do_rest() const {
    if (rest_) rest_();
  }
  const std::optional<Precondition>& required() const { return precondition_; }
  /// The same around another step.
  Work with_step(Step step) const {
    Work work = *this;
    work.step_ = std::move(step);
    return work;
  }

 private:
  Step step_;
  std::function<void()> before_;
  std::function<void()> rest_;
  std::optional<Precondition> precondition_;
};

/// A number or a word on an axis of the sweep.
using Value = std::variant<std::int64_t, std::string>;

struct Axis {
  std::string name;
  std::vector<Value> values;
};

/// One case of the sweep: axis name and value, in the order of the axes.
using Point = std::vector<std::pair<std::string, Value>>;

/// Work of one step, counted by hand. Rates and the fraction of the roof come from it.
struct Cost {
  double bytes = 0;       // moved through the memory or the link that `roof` names
  double flops = 0;       // arithmetic operations; integer ones too
  double items = 0;       // whatever the technique counts: launches, allocations, samples
  std::string item = {};  // what one of them is, in the singular: "image", "token"; empty: nothing worth a rate
  std::string roof =
      {};  // the ceiling that bounds it: device_memory, host_memory, host_link/h2d, gemm/bf16, ...; may be empty
};

/// What "the same result" means. Run for every arm before anything is timed; a mismatch is `failed`, never timed.
/// Python arms check themselves: where all are such, `meaning` and `tolerance` are enough.
struct Check {
  std::string meaning;                             // for the report: "exact bytes", "relative error against FP64"
  std::function<void(StreamHandle)> poison = {};   // overwrites the output, so that an arm that writes nothing is found
  std::function<double(StreamHandle)> error = {};  // after one step: 0 for the same result. May synchronise. NaN fails.
  double tolerance = 0;                            // passes when error <= tolerance
};

/// What judges an arm's windows. By kUnheld the slower of host and device sets the pace, as in a training loop; where
/// another arm of the case has no device events, the wall clock judges such arms too.
enum class Clock {
  kDevice,  // device events around the window, queued behind a holding kernel; host launch cost does not leak in
  kUnheld,  // device events around the window, in the midst of steps that the host issues as it can
  kHost,    // wall clock from the first call to the end of the work
};

/// Runs an arm in child processes of its own that answer windows over pipes.
struct Worker {
  bool python = false;       // the script <name>.py beside the technique's file makes the arm; see python_arm()
  bool device = false;       // the arm's steps run on the device, which the child opens for itself
  std::string preload = {};  // library name for LD_PRELOAD, e.g. "libjemalloc.so.2"; may be empty
  std::string remedy = {};   // what to install when `preload` or the wrapper's program is missing
  std::map<std::string, std::string> environment = {};  // what a record shows of it: no path, no name of a machine
  /// Processes of the arm, each with a GPU of its own where it uses one. All take each window together, which is that
  /// of the slowest: from the first start to the last end. Ranks in Python find RANK, WORLD_SIZE, LOCAL_RANK,
  /// MASTER_ADDR and MASTER_PORT in their environment.
  int ranks = 1;
  std::vector<std::string> wrapper = {};  // in front of the command: {"numactl", "--cpunodebind=0"}
};

/// Facts about an arm beyond its time, for the record. Names end in their units: "peak_reserved_bytes". The report
/// takes "peak_allocated_bytes" for the arm's device memory. The engine adds joules and kernel launches of whole steps.
using Metrics = std::map<std::string, double>;

struct Arm {
  std::string name;
  /// Allocates what belongs to this arm alone and returns its step, which owns it. The engine decides the order in
  /// which arms allocate, and measures the arm's peak memory while no other arm exists.
  std::function<Work()> make;
  Clock clock = Clock::kDevice;
  std::optional<Cost> cost = {};         // where it differs from the trial's
  std::optional<double> tolerance = {};  // where it differs from the check's
  std::optional<Worker> worker = {};
  std::string unavailable = {};  // why this arm cannot run here; empty: it can
  /// Asked once, after the check and with this arm alone; may take steps of its own.
  std::function<Metrics(const Step&, StreamHandle)> metrics = {};
};

/// An arm that the script <name>.py beside the technique's <name>.cpp makes, steps and checks, in a Python process of
/// its own. The technique lists it in `python` too.
inline Arm python_arm(const std::string& name) {
  return {.name = name, .make = {}, .clock = Clock::kUnheld, .worker = Worker{.python = true}};
}

/// The place of a process among those of its arm.
struct Group {
  int rank = 0;
  int ranks = 1;
};

/// A folder for files of this case alone, empty at first and removed with all that is in it. Records hold the facts of
/// its disk, never its path.
struct Scratch {
  std::filesystem::path path;
  std::string filesystem;  // "ext4"; empty: not known
  bool in_memory = false;  // tmpfs: no disk is measured
  double free_bytes = 0;   // when it was asked for
};

/// One case of one technique in one launch. The engine implements it.
class Trial {
 public:
  virtual ~Trial() = default;

  virtual const Point& point() const = 0;
  /// Throws Skipped when there is no usable device.
  virtual Device& device() = 0;
  /// Whether device() is there: for techniques that run on the host too.
  virtual bool has_device() const = 0;
  /// Fresh for every launch, the same for all arms of a case.
  virtual std::uint64_t seed() const = 0;
  virtual void cost(const Cost& per_step) = 0;
  virtual void check(Check same_result) = 0;
  /// The place of this process among the ranks of its arm; one alone outside of arms that have several.
  virtual Group group() const { return {}; }
  /// What rank 0 makes, on every rank: an ncclUniqueId, say. Only in Arm::make, and there on every rank.
  virtual std::string from_first(const std::function<std::string()>& make) { return make(); }
  /// CUDA indices of the GPUs that the case may use, device() being the first; empty where there is none.
  virtual std::vector<int> gpus() const = 0;
  /// Cores that this process may keep busy, container limits included.
  virtual int cores() const = 0;
  /// Throws Skipped where no folder can be had.
  virtual Scratch scratch() = 0;
  /// The version of a library that the arms run through. Records with different ones are not compared.
  virtual void version(const std::string& library, const std::string& version) = 0;
  /// A fact about this case for the record, such as the algorithm that a search chose.
  virtual void note(const std::string& key, const std::string& value) = 0;
  /// What an earlier launch of this case noted under the key, so that a search runs once per run.
  virtual std::optional<std::string> recall(const std::string& key) const = 0;
  /// The baseline first. Names must be those of Technique::arms, in that order. Checks every arm, measures its memory,
  /// then times all in balanced order. Call it once; what the steps capture must live until it returns.
  virtual void compare(std::vector<Arm> arms) = 0;
  /// The case cannot run here, which is a result: recorded as skipped with reason and remedy.
  [[noreturn]] virtual void skip(const std::string& reason, const std::string& remedy = "") = 0;

  /// The point's value on a numeric axis; throws std::logic_error for an unknown axis or a word.
  std::int64_t number(std::string_view axis) const { return value<std::int64_t>(axis); }
  /// The point's value on a word axis; throws std::logic_error for an unknown axis or a number.
  std::string word(std::string_view axis) const { return value<std::string>(axis); }

 private:
  template <typename T>
  T value(std::string_view axis) const {
    for (const auto& [name, held] : point()) {
      if (name == axis && std::holds_alternative<T>(held)) return std::get<T>(held);
    }
    throw std::logic_error("no such axis of that type: " + std::string(axis));
  }
};

/// What was expected of an arm before its first run, as a number: the report holds it beside what was measured.
struct Prediction {
  struct Range {
    double low;
    double high;  // both belong to it
  };
  std::string arm;
  Point cases = {};                   // of all cases those that have these values; empty: all
  std::string on = {};                // part of a machine's name in results/: "h100", "cpu"; empty: any machine
  std::optional<Range> speedup = {};  // over the baseline, or
  std::optional<Range> step_time_s = {};
};

/// What of a step's data a cache holds when the step begins.
enum class Cache {
  kUnsaid,
  kNone,    // no step reads through it
  kCold,    // nothing: operands rotate over three times its size, or files are evicted
  kWarm,    // what the step before it left
  kBySize,  // cases decide: what is three times as large as the cache is cold, what is smaller is warm
  kByCase,  // an axis of the sweep says cold or warm
};

struct Technique {
  std::string question;                  // one sentence; heading in the report
  std::string expectation;               // the prediction with its arithmetic, written before the first run, as one
                                         // paragraph: its line breaks count as spaces
  std::vector<Prediction> predict = {};  // the same in numbers
  std::string found = {};                // why records miss a prediction by more than a factor of 1.3, or that it is
                                         // not known; one paragraph
  std::vector<std::string> claims = {};  // ids of the published statements that it tests
  int gpus = 1;  // the least number. 0: runs on any machine; whole steps then take the device if there is one. An axis
                 // "gpus" asks for more by case: what is not there is skipped
  bool ceiling = false;       // true: its arms measure the machine's own roofs, not one against another
  bool integrity = false;     // true: its check is the finding: where it fails, the machine is broken
  bool launch_bound = false;  // true: launches set the pace of its steps, not the device's work
  bool whole_steps = false;   // true: a step is a whole training step: its joules and kernel launches are counted
  bool spans_hosts = false;   // true: its ranks, one for each of the axis "gpus", may be on several hosts, whose axis
                              // "nodes" says how many, and the link "fabric" lies between them
  std::vector<std::string> arms = {};  // the baseline first
  /// Of these, arms whose gain is not the technique's own: what nobody would run, or what another technique brings.
  /// They are measured and shown, lead nowhere and are no claim's baseline.
  std::vector<std::string> controls = {};
  std::vector<std::string> python = {};  // of these, in the same order, those that are a python_arm()
  Cache l2 = Cache::kUnsaid;             // of the device
  Cache page_cache = Cache::kUnsaid;
  std::vector<Axis> sweep = {};   // cases = all combinations. An axis "regime" of "burst" and "sustained" is the
                                  // engine's: it selects the windows. Without it every case is burst.
  std::vector<Point> quick = {};  // cases of `qualify --quick`: those that match all values of one of these
  std::function<void(Trial&)> run = nullptr;
};

/// Each benches/<theme>/<name>.cpp or .cu defines exactly this one object.
extern const Technique technique;

}  // namespace gpulift
