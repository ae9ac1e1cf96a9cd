#pragma once
// All that a technique file may use: what it asks, which cases it has, what a step costs, what "the same result"
// means, and its arms. It never sees a clock, a loop count, a format or a flag.

#include <cstdint>
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

/// Runs an arm in a child process of its own that answers windows over pipes.
struct Worker {
  bool python = false;       // the script <name>.py beside the technique's file makes the arm; see python_arm()
  bool device = false;       // the arm's steps run on the device, which the child opens for itself
  std::string preload = {};  // library name for LD_PRELOAD, e.g. "libjemalloc.so.2"; may be empty
  std::string remedy = {};   // what to install when `preload` is missing
  std::map<std::string, std::string> environment = {};
};

/// Facts about an arm beyond its time, for the record. Names end in their units: "peak_reserved_bytes". The report
/// takes "peak_allocated_bytes" for the arm's device memory. The engine adds joules and kernel launches of whole steps.
using Metrics = std::map<std::string, double>;

struct Arm {
  std::string name;
  /// Allocates what belongs to this arm alone and returns its step, which owns it. The engine decides the order in
  /// which arms allocate, and measures the arm's peak memory while no other arm exists.
  std::function<Step()> make;
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

struct Technique {
  std::string question;                  // one sentence; heading in the report
  std::string expectation;               // the prediction with its arithmetic, written before the first run
  std::vector<std::string> claims = {};  // ids of the published statements that it tests
  bool needs_device = true;              // false: runs on any machine; whole steps then take the device if there is one
  bool ceiling = false;                  // true: its arms measure the machine's own roofs, not one against another
  bool whole_steps = false;              // true: a step is a whole training step, and takes milliseconds
  std::vector<std::string> arms = {};    // the baseline first
  std::vector<std::string> python = {};  // of these, in the same order, those that are a python_arm()
  std::vector<Axis> sweep = {};          // cases = all combinations. An axis "regime" of "burst" and "sustained" is the
                                         // engine's: it selects the windows. Without it every case is burst.
  std::vector<Point> quick = {};         // cases of `qualify --quick`: those that match all values of one of these
  void (*run)(Trial&) = nullptr;
};

/// Each benches/<theme>/<name>.cpp defines exactly this one object.
extern const Technique technique;

}  // namespace gpulift
