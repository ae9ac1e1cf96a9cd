#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "core/cuda/error.hpp"
#include "core/host/testing/busy_work.hpp"

namespace {

using namespace gpulift::testing_techniques;
using gpulift::Arm;
using gpulift::Metrics;
using gpulift::Step;
using gpulift::StreamHandle;
using gpulift::Trial;
using gpulift::Work;
using gpulift::Worker;

using Scenario = std::function<void(Trial&, const Output&)>;
using OtherArm = std::function<Arm(Trial&, const Output&)>;

constexpr int kRounds = 1000;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Arm fine(const std::string& name, const Output& output) { return working_arm(name, output, kRounds); }

/// A case of two arms: a sound baseline, and this one.
Scenario with(OtherArm other) {
  return [other = std::move(other)](Trial& trial, const Output& output) {
    compare_with(trial, other(trial, output), output);
  };
}

Scenario with_worker(OtherArm other, Worker worker = {}) {
  return with([other = std::move(other), worker = std::move(worker)](Trial& trial, const Output& output) {
    Arm arm = other(trial, output);
    arm.worker = worker;
    return arm;
  });
}

/// The arm whose make() is this.
Arm other_arm(std::function<Work()> make) { return {.name = "other", .make = std::move(make)}; }

Arm sound(Trial&, const Output& output) { return fine("other", output); }

Arm crashing(Trial&, const Output&) {
  return other_arm([]() -> Work {
    std::signal(SIGSEGV, SIG_DFL);  // past the handler of a sanitizer
    std::raise(SIGSEGV);
    throw std::logic_error("still there");
  });
}

Arm hanging(Trial&, const Output&) {
  return other_arm([]() -> Work {
    for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
  });
}

/// Writes nothing, so that the check finds the poison.
Arm idle(Trial&, const Output&) {
  return other_arm([] { return [](StreamHandle) {}; });
}

/// Arms that count their steps, and this check of the count.
Scenario judged_by(double (*error)(int steps), const std::optional<Worker>& worker = {}) {
  return [=](Trial& trial, const Output& steps) {
    trial.check({.meaning = "a number",
                 .poison = [steps](StreamHandle) { *steps = 0; },
                 .error = [=](StreamHandle) { return error(static_cast<int>(*steps)); }});
    const auto make = [steps] { return [steps](StreamHandle) { *steps += busy_work(1, kRounds) == 0 ? 0 : 1; }; };
    trial.compare(
        {{.name = "baseline", .make = make, .worker = worker}, {.name = "other", .make = make, .worker = worker}});
  };
}

double finds_nothing(int) { return 0; }

double needs_a_step(int steps) {
  if (steps == 0) throw std::logic_error("nothing to look at");
  return steps - 1;
}

Arm unsupported(Trial&, const Output&) {
  return other_arm([]() -> Work { throw gpulift::NotSupported("no such type here"); });
}

Arm with_nan_metric(Trial&, const Output& output) {
  Arm arm = fine("other", output);
  arm.metrics = [](const Step&, StreamHandle) { return Metrics{{"speed", kNan}}; };
  return arm;
}

/// Right only where `holds` says so in the process that takes the step.
Arm right_where(const Output& output, bool (*holds)()) {
  return other_arm([output, holds] {
    return [output, holds](StreamHandle) { *output = holds() && busy_work(1, kRounds) != 0 ? 42 : 0; };
  });
}

Arm in_its_environment(Trial&, const Output& output) {
  return right_where(output, [] {
    const char* set = std::getenv("GPULIFT_TESTING_WORKER");
    return set != nullptr && std::string(set) == "yes";
  });
}

constexpr int kNiceness = 7;

Arm niced(Trial&, const Output& output) {
  return right_where(output, [] { return getpriority(PRIO_PROCESS, 0) >= kNiceness; });
}

/// Does not even fit alone, or does not beside the others: it is made for its check, and then once more.
Arm greedy(const std::string& name, const Output& output, bool fits_alone) {
  Arm arm = fine(name, output);
  arm.make = [make = arm.make, fits = fits_alone]() mutable {
    if (!fits) throw gpulift::OutOfMemory("asked for too much");
    fits = false;
    return make();
  };
  return arm;
}

/// What an arm leaves behind, and what the work around its windows does about it.
struct Left {
  int prepared = 0;
  int steps_since = 0;
  bool working_on = false;
};

/// An arm whose windows begin in a state of its own, of which a look finds `share` left after so many preparations.
OtherArm cold(std::function<std::optional<double>(int prepared)> share) {
  return [share = std::move(share)](Trial&, const Output& output) {
    Arm arm = other_arm([share, output] {
      auto left = std::make_shared<Left>();
      Work work([left, output](StreamHandle) {
        const bool alone = left->prepared > 0 && ++left->steps_since == 1 && !left->working_on;
        left->working_on = true;
        *output = busy_work(1, 100000) != 0 && alone ? 42 : 0;
        if (*output == 0) throw std::runtime_error("a step that began in no fresh state");
      });
      work.before([left] {
        ++left->prepared;
        left->steps_since = 0;
      });
      work.rest([left] { left->working_on = false; });
      work.precondition(
          {.name = "resident_share", .look = [left, share] { return share(left->prepared); }, .most = 0.01});
      return work;
    });
    arm.clock = gpulift::Clock::kHost;
    return arm;
  };
}

const OtherArm kCold = cold([](int) { return 0.001; });
const OtherArm kColdAtFirst = cold([](int prepared) { return prepared > 4 ? 0.5 : 0.001; });
const OtherArm kNeverCold = cold([](int) { return 1.0; });
const OtherArm kColdUntold = cold([](int) { return std::nullopt; });

/// All arms of the case have one folder for files, and those in a process of their own, too.
void share_scratch(Trial& trial, const Output& output) {
  const gpulift::Scratch scratch = trial.scratch();
  trial.version("ink", "1.2");
  trial.note("cores", std::to_string(trial.cores()));
  std::ofstream(scratch.path / "leaf") << "written";
  Arm arm = other_arm([&trial, output] {
    const bool same_folder = std::filesystem::exists(trial.scratch().path / "leaf");
    return [output, same_folder](StreamHandle) { *output = same_folder ? 42 : 0; };
  });
  arm.worker = Worker{};
  compare_with(trial, std::move(arm), output);
}

/// What a case may do, by the word on its axis.
const std::vector<std::pair<std::string, Scenario>>& scenarios() {
  static const std::vector<std::pair<std::string, Scenario>> all{
      {"throws", [](Trial&, const Output&) { throw std::runtime_error("thrown on purpose,\nin two lines"); }},
      {"skips", [](Trial& trial, const Output&) { trial.skip("not on this machine", "use another machine"); }},
      {"compares_nothing", [](Trial&, const Output&) {}},
      {"has_no_check",
       [](Trial& trial, const Output& output) { trial.compare({fine("baseline", output), fine("other", output)}); }},
      {"has_other_arms",
       [](Trial& trial, const Output& output) {
         trial.check(expect_42(output));
         trial.compare({fine("baseline", output), fine("undeclared", output)});
       }},
      {"has_undeclared_python",
       [](Trial& trial, const Output&) {
         trial.cost({.items = 1});
         trial.check({.meaning = "said by the script"});
         trial.compare({gpulift::python_arm("baseline"), gpulift::python_arm("other")});
       }},
      {"errs_by_nan", judged_by([](int) { return kNan; })},
      {"errs_below_0", judged_by([](int) { return -1.0; })},
      {"check_finds_nothing", judged_by(finds_nothing)},
      {"worker_check_finds_nothing", judged_by(finds_nothing, Worker{})},
      {"check_needs_a_step", judged_by(needs_a_step)},
      {"costs_infinity",
       [](Trial& trial, const Output& output) {
         trial.cost({.items = std::numeric_limits<double>::infinity()});
         compare_with(trial, fine("other", output), output);
       }},
      {"names_no_roof",
       [](Trial& trial, const Output& output) {
         trial.cost({.bytes = 1, .roof = "host_memroy"});
         compare_with(trial, fine("other", output), output);
       }},
      {"fits_not_together",
       [](Trial& trial, const Output& output) {
         trial.check(expect_42(output));
         trial.compare({greedy("baseline", output, true), greedy("other", output, true)});
       }},
      {"other_fits_not", with([](Trial&, const Output& output) { return greedy("other", output, false); })},
      {"baseline_fits_not",
       [](Trial& trial, const Output& output) {
         trial.check(expect_42(output));
         trial.compare({greedy("baseline", output, false), fine("other", output)});
       }},
      {"crashes", with(crashing)},
      {"hangs", with(hanging)},
      {"writes_nothing", with(idle)},
      {"is_unsupported", with(unsupported)},
      {"measures_nan", with(with_nan_metric)},
      {"worker_crashes", with_worker(crashing)},
      {"worker_has_environment", with_worker(in_its_environment, {.environment = {{"GPULIFT_TESTING_WORKER", "yes"}}})},
      {"worker_is_niced", with_worker(niced, {.wrapper = {"nice", "-n", std::to_string(kNiceness)}})},
      {"worker_lacks_wrapper", with_worker(niced, {.remedy = "install it", .wrapper = {"gpulift_no_such_program"}})},
      {"worker_lacks_preload",
       with_worker(sound, {.preload = "libgpulift_that_does_not_exist.so.1", .remedy = "install it"})},
      {"shares_scratch", share_scratch},
      {"cold", with(kCold)},
      {"cold_at_first", with(kColdAtFirst)},
      {"never_cold", with(kNeverCold)},
      {"cold_untold", with(kColdUntold)},
      {"worker_cold", with_worker(kCold)},
      {"worker_cold_at_first", with_worker(kColdAtFirst)},
      {"worker_never_cold", with_worker(kNeverCold)},
      {"worker_cold_untold", with_worker(kColdUntold)},
  };
  return all;
}

std::vector<gpulift::Value> names() {
  std::vector<gpulift::Value> names;
  for (const auto& [name, scenario] : scenarios()) names.emplace_back(name);
  return names;
}

void run(Trial& trial) {
  for (const auto& [name, scenario] : scenarios()) {
    if (name == trial.word("does")) return scenario(trial, make_output());
  }
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What becomes of a case that does what no technique should, or needs what is not everywhere?",
    .expectation = "An error, a failure or a skip of that case or arm alone, with its reason.",
    .gpus = 0,
    .arms = {"baseline", "other"},
    .sweep = {{"does", names()}},
    .quick = {{}},
    .run = run,
};
