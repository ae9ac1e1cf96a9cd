#include "trial.hpp"

#include <algorithm>
#include <limits>
#include <thread>

#include "core/harness/host_limits.hpp"
#include "core/harness/record_file.hpp"
#include "core/harness/scratch.hpp"
#include "core/host/record/catalogue.hpp"

namespace gpulift {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kSameValue = 0.01;  // of values in Python, where the script does not say: BF16 against FP32

class CaseTrial : public Trial {
 public:
  CaseTrial(const Technique& technique, const Job& job, LaunchContext& launch, const UseArms& use)
      : technique_(technique), job_(job), launch_(launch), use_(use), point_(point_from_json(job.point)) {}

  const Point& point() const override { return point_; }
  Device& device() override {
    if (launch_.device == nullptr && launch_.has_gpu)
      throw std::logic_error("only the workers of this technique have the GPU: ask for it where an arm is made");
    if (launch_.device == nullptr) skip(launch_.no_device.reason, launch_.no_device.remedy);
    return launch_.device->device();
  }
  bool has_device() const override { return launch_.has_gpu; }
  std::uint64_t seed() const override { return case_seed(job_, launch_.settings); }
  void cost(const Cost& per_step) override { cost_ = per_step; }
  void check(Check same_result) override { check_ = std::move(same_result); }
  Group group() const override { return launch_.group; }
  std::string from_first(const std::function<std::string()>& make) override {
    return launch_.from_first ? launch_.from_first(make) : make();
  }
  std::vector<int> gpus() const override {
    if (!launch_.has_gpu) return {};
    std::vector<int> own_first = launch_.settings.gpus;
    const auto own = std::min(static_cast<std::size_t>(launch_.group.rank), own_first.size());
    std::rotate(own_first.begin(), own_first.begin() + static_cast<std::ptrdiff_t>(own), own_first.end());
    return own_first;
  }
  int cores() const override { return allowed_cores(static_cast<int>(std::thread::hardware_concurrency())); }
  Scratch scratch() override {
    const auto folder = scratch_of_case(launch_.settings, job_);
    std::error_code failure;
    if (!folder.empty()) std::filesystem::create_directory(folder, failure);
    if (folder.empty() || failure) {
      skip("no folder for files: " + (folder.empty() ? launch_.settings.scratch_missing : failure.message()),
           "name a folder on a disk: --scratch DIR");
    }
    const DiskFacts facts = disk_facts(folder);
    said_.scratch = to_json(facts);
    return {folder, facts.filesystem, facts.in_memory, facts.free_bytes};
  }
  void version(const std::string& library, const std::string& version) override { said_.versions[library] = version; }
  void note(const std::string& key, const std::string& value) override { said_.notes[key] = value; }
  std::optional<std::string> recall(const std::string& key) const override {
    return job_.recalled.contains(key) ? std::optional(job_.recalled.at(key).get<std::string>()) : std::nullopt;
  }
  [[noreturn]] void skip(const std::string& reason, const std::string& remedy) override {
    throw Skipped(reason, remedy);
  }

  void compare(std::vector<Arm> arms) override {
    if (compared_) throw std::logic_error("a technique calls compare() once");
    compared_ = true;
    require_declared(arms);
    if (!job_.arms.empty()) {
      std::erase_if(arms, [this](const Arm& arm) {
        return std::find(job_.arms.begin(), job_.arms.end(), arm.name) == job_.arms.end();
      });
    }
    use_({arms, check_, cost_, said_});
  }

  bool compared() const { return compared_; }
  const Said& said() const { return said_; }

 private:
  void require_declared(const std::vector<Arm>& arms) const {
    std::vector<std::string> names;
    std::vector<std::string> python;
    for (const Arm& arm : arms) {
      names.push_back(arm.name);
      if (is_python(arm)) python.push_back(arm.name);
    }
    if (names != technique_.arms)
      throw std::logic_error("compare() must get the arms that the technique declares, in order");
    if (python != technique_.python)
      throw std::logic_error("compare() must get the Python arms that the technique declares, in order");
    if (!check_.error && (check_.meaning.empty() || python.size() != arms.size()))
      throw std::logic_error("a technique says what the same result is (check) before it compares");
  }

  const Technique& technique_;
  const Job& job_;
  LaunchContext& launch_;
  const UseArms& use_;
  Point point_;
  Cost cost_;
  Check check_;
  Said said_;
  bool compared_ = false;
};

/// A word for "ranks" is the axis of the case that says how many.
Worker worker_of_script(const Json& manifest, const std::string& arm, const Trial& trial) {
  Worker worker{.python = true};
  const auto of_arm = [&](const char* key) { return manifest.value(key, Json::object()).value(arm, Json()); };
  if (const Json ranks = of_arm("ranks"); !ranks.is_null())
    worker.ranks = ranks.is_string() ? static_cast<int>(trial.number(ranks.get<std::string>())) : ranks.get<int>();
  if (const Json preload = of_arm("preload"); !preload.is_null()) {
    worker.preload = preload;
    worker.remedy = "install the package that has " + std::filesystem::path(worker.preload).filename().string() +
                    ": ./gpulift doctor names those of known allocators";
  }
  if (const Json environment = of_arm("environment"); !environment.is_null())
    worker.environment = environment.get<std::map<std::string, std::string>>();
  return worker;
}

}  // namespace

bool is_python(const Arm& arm) { return arm.worker && arm.worker->python; }

std::filesystem::path scratch_of_case(const RunSettings& settings, const Job& job) {
  return settings.scratch.empty() ? std::filesystem::path()
                                  : std::filesystem::path(settings.scratch) / job.side / "case";
}

Technique technique_of_script(const Json& manifest) {
  Technique technique;
  technique.gpus = manifest.at("gpus");
  technique.ceiling = manifest.at("ceiling");
  technique.whole_steps = manifest.at("whole_steps");
  technique.arms = manifest.at("arms").get<std::vector<std::string>>();
  technique.python = technique.arms;
  technique.run = [manifest](Trial& trial) {
    const Json check = manifest.value("check", Json::object());
    trial.check({.meaning = check.value("meaning", "the value that an arm gives after a step, relative to the first's"),
                 .tolerance = check.value("tolerance", kSameValue)});
    std::vector<Arm> arms;
    for (const std::string name : manifest.at("arms")) {
      arms.push_back(python_arm(name));
      arms.back().worker = worker_of_script(manifest, name, trial);
    }
    trial.compare(std::move(arms));
  };
  return technique;
}

std::uint64_t case_seed(const Job& job, const RunSettings& settings) {
  // FNV-1a over the case's name: stable from build to build, unlike std::hash.
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char letter : full_case_id(job.technique, job.case_id)) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211ULL;
  }
  // The mixing of SplitMix64 (Steele, Lea, Flood 2014): launches differ in low bits alone before it.
  std::uint64_t mixed = hash + 0x9E3779B97F4A7C15ULL * (1000 * settings.seed + static_cast<std::uint64_t>(job.launch));
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9ULL;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBULL;
  // JSON numbers above 2^53 lose digits in some readers.
  return (mixed ^ (mixed >> 31)) >> 12;
}

double checked_error(const Work& work, const Check& check, DeviceSession* device,
                     const std::function<void()>& after_step) {
  const StreamHandle stream = device != nullptr ? device->stream() : nullptr;
  if (check.poison) check.poison(stream);
  work.do_before();
  if (const auto& required = work.required()) {
    const auto seen = required->look();
    if (!seen) throw Skipped(required->name + " cannot be told here", "");
    if (!(*seen <= required->most)) {
      throw Failed(required->name + " is " + std::to_string(*seen) + " ahead of a step, and may be at most " +
                   std::to_string(required->most));
    }
  }
  work.step()(stream);
  if (device != nullptr) device->synchronize();
  after_step();
  work.do_rest();
  const double error = check.error(stream);
  work.do_rest();  // of what the check took
  return error;
}

void prove_check(const Arm& arm, const Check& check, DeviceSession* device) {
  const StreamHandle stream = device != nullptr ? device->stream() : nullptr;
  const Work unstepped = arm.make();  // of its own: some checks take the steps behind the first
  double error = std::numeric_limits<double>::quiet_NaN();
  try {
    if (check.poison) check.poison(stream);
    error = check.error(stream);
  } catch (const std::exception&) {
    return;
  }
  if (error <= arm.tolerance.value_or(check.tolerance))
    throw Failed("arm " + arm.name + " passes its check (" + check.meaning + ") before it has taken a step");
}

Metrics metrics_of(const Arm& arm, const Work& work, DeviceSession* device) {
  if (!arm.metrics) return {};
  const Metrics metrics = arm.metrics(work.step(), device != nullptr ? device->stream() : nullptr);
  require_finite(metrics, "arms." + arm.name + ".metrics");  // a worker's line could not even say such a number
  if (device != nullptr) device->synchronize();
  work.do_rest();
  return metrics;
}

Said run_up_to_compare(const Technique& technique, const Job& job, LaunchContext& launch, const UseArms& use) {
  CaseTrial trial(technique, job, launch, use);
  technique.run(trial);
  if (!trial.compared()) throw std::logic_error("the technique returned without comparing its arms");
  return trial.said();
}

}  // namespace gpulift
