#include "supervisor.hpp"

#include <algorithm>
#include <chrono>
#include <random>

#include "core/harness/window.hpp"
#include "interrupt.hpp"
#include "launch.hpp"

namespace gpulift {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kFarewell_s = 20;  // for a child to end after its last record
constexpr double kSign_s = 10;      // between two looks at how long the log has been silent
constexpr double kGrace_s = 2;      // for a child to say which of its own is silent

std::string case_key(const Job& job) {
  return full_case_id(job.technique, job.case_id) + (job.is_duet() ? "/" + job.arm : "");
}
std::string launch_key(const std::string& case_key, int launch) { return case_key + "#" + std::to_string(launch); }

std::set<std::string> arms_of(const RecordSummary& record) {
  std::set<std::string> names;
  for (const ArmSummary& arm : record.arms) names.insert(arm.name);
  return names;
}

}  // namespace

double planned_s(const Job& job, const RunSettings& settings, std::size_t arms) {
  constexpr double kSustainedWindow_s = 1.5;  // with its lead-in
  const double windows = settings.quick ? 2 : 6;
  if (job.regime == "sustained") return static_cast<double>(arms) * windows * kSustainedWindow_s;
  return static_cast<double>(arms) * settings.arm_time_s;
}

bool is_measured_once(const Job& job, const RunSettings& settings) {
  return settings.quick && (job.regime == "sustained" || job.whole_steps);
}

std::string step_name(const Job& job, const RunSettings& settings) {
  const int launches = is_measured_once(job, settings) ? 1 : settings.launches;
  return case_key(job) + ", launch " + std::to_string(job.launch + 1) + " of " + std::to_string(launches);
}

Supervisor::Supervisor(const RunSettings& settings, RecordFolder* folder, Json context, Progress& progress)
    : settings_(settings), folder_(folder), context_(std::move(context)), progress_(progress) {
  if (folder_ == nullptr) return;
  for (const Json& record : folder_->records()) records_.add(summary_of(record));
  for (const RecordSummary& record : records_.all()) {
    if (record.outcome != "error") done_[record_key(record)] = arms_of(record);
    if (!record.notes.empty()) notes_[record.case_name].update(record.notes);
  }
}

const std::set<std::string>* Supervisor::done(const Job& job) const {
  const auto found = done_.find(launch_key(case_key(job), job.launch));
  return found == done_.end() ? nullptr : &found->second;
}

// A run may go on with more arms than it began with.
bool Supervisor::is_done(const Job& job) const {
  const auto* arms = done(job);
  if (arms == nullptr) return false;
  if (job.is_duet() || arms->empty()) return true;
  return std::all_of(job.arms.begin(), job.arms.end(), [&](const std::string& arm) { return arms->contains(arm); });
}

std::vector<Job> Supervisor::jobs_of_launch(const std::vector<Job>& cases, int launch) const {
  std::vector<Job> jobs;
  for (Job job : cases) {
    job.launch = launch;
    if ((launch > 0 && is_measured_once(job, settings_)) || is_done(job)) continue;
    // The record that comes takes the place of the one before, so that it has the arms of both.
    if (const auto* arms = done(job); arms != nullptr) job.arms.insert(job.arms.end(), arms->begin(), arms->end());
    jobs.push_back(std::move(job));
  }
  std::mt19937_64 random(settings_.seed + static_cast<std::uint64_t>(launch));
  std::shuffle(jobs.begin(), jobs.end(), random);
  return jobs;
}

bool Supervisor::run(const std::vector<Job>& cases) {
  std::size_t steps = 0;
  double weight = 0;
  for (int launch = 0; launch < settings_.launches; ++launch) {
    for (const Job& job : jobs_of_launch(cases, launch)) {
      ++steps;
      weight += planned_s(job, settings_, 1);
    }
  }
  progress_.plan(steps, weight);
  for (int launch = 0; launch < settings_.launches; ++launch) {
    std::vector<Job> jobs = jobs_of_launch(cases, launch);
    std::erase_if(jobs, [this](const Job& job) { return broken_.contains(case_key(job)); });
    // Workers have the GPUs for themselves: the process that measures them has no context on one.
    const auto others =
        std::stable_partition(jobs.begin(), jobs.end(), [](const Job& job) { return !job.all_workers; });
    if (!run_all({jobs.begin(), others}) || !run_all({others, jobs.end()})) return false;
  }
  progress_.finish();
  return true;
}

/// False when the user interrupted.
bool Supervisor::run_all(std::vector<Job> jobs) {
  while (!jobs.empty()) {
    for (Job& job : jobs) {
      const auto noted = notes_.find(full_case_id(job.technique, job.case_id));
      if (noted != notes_.end()) job.recalled = noted->second;
      job.earlier = earlier_metrics(records_.all(), job);
    }
    const std::size_t finished = run_in_one_process(jobs);
    if (interrupted()) return false;
    jobs.erase(jobs.begin(), jobs.begin() + static_cast<std::ptrdiff_t>(finished));
  }
  return true;
}

// Returns how many of the jobs are finished, the one that ended the process included: at least one, unless interrupted.
std::size_t Supervisor::run_in_one_process(const std::vector<Job>& jobs) {
  Process child({own_program(), "--serve-launch"}, {});
  Json request{{"settings", to_json(settings_)},
               {"has_gpu", context_.contains("gpu")},
               {"all_workers", jobs.front().all_workers},
               {"jobs", Json::array()}};
  for (const Job& job : jobs) request["jobs"].push_back(to_json(job));
  child.send(request.dump());
  progress_.begin(step_name(jobs.front(), settings_));
  for (std::size_t index = 0; index < jobs.size();) {
    const Job& job = jobs[index];
    const double limit_s = timeout_of(job, settings_) + kGrace_s;
    std::string line;
    const auto got = hear(child, line, limit_s);
    if (interrupted() && got != Process::Read::kLine) return index;  // a record that came is kept
    if (got == Process::Read::kTimeout) {
      child.kill();
      keep_error(job,
                 "no sign of life within " + std::to_string(static_cast<int>(limit_s)) + " s: stopped (see --timeout)");
      return index + 1;
    }
    if (got == Process::Read::kClosed) {
      const Ended ended = child.wait();
      // After the last record of a poisoned context the child ends on purpose.
      if (index > 0 && ended.exit_code == kPoisonedExit) return index;
      keep_error(job, "the process that measured it ended with " + ended.text());
      return index + 1;
    }
    const Json message = Json::parse(line);
    if (message.at("event") == "lost_gpu") {
      for (const Job& lost : jobs) keep_unmeasured(lost, message.at("reason"), message.at("remedy"));
      return jobs.size();
    }
    if (message.at("event") == "alive") progress_.doing(message.at("what"));
    if (message.at("event") == "record") {
      const Json& record = message.at("record");
      keep(job, record);
      // A script with a mistake in it has the same one in every launch.
      if (job.launch == 0 && !job.is_duet() && record.at("outcome") == "error") broken_.insert(case_key(job));
      ++index;
      if (interrupted()) return index;
      if (index < jobs.size()) progress_.begin(step_name(jobs[index], settings_));
    }
  }
  // Profilers and sanitizers write their findings at the end of the process.
  if (std::string line; child.receive(line, kFarewell_s) == Process::Read::kClosed) child.wait();
  return jobs.size();
}

/// A line of the child, as receive() says. Until it comes, the log says what is waited for.
Process::Read Supervisor::hear(Process& child, std::string& line, double limit_s) {
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
    const double left_s = limit_s - waited.count();
    const auto got = child.receive(line, std::min(left_s, kSign_s));
    if (got != Process::Read::kTimeout || interrupted() || left_s <= kSign_s) return got;
    progress_.still();
  }
}

void Supervisor::keep(const Job& job, const Json& record) {
  if (folder_ != nullptr) folder_->append(record);
  RecordSummary summary = summary_of(record);
  if (!summary.notes.empty()) notes_[summary.case_name].update(summary.notes);
  done_[record_key(summary)] = arms_of(summary);
  const std::string outcome = summary.failed_arm.empty() ? "ok" : "ok, but " + summary.failed_arm;
  progress_.end(step_name(job, settings_), summary.failure.empty() ? outcome : summary.failure,
                planned_s(job, settings_, 1));
  records_.add(std::move(summary));
}

void Supervisor::keep_error(const Job& job, const std::string& reason) {
  broken_.insert(case_key(job));
  keep_unmeasured(job, reason, remedy_of_error(job));
}

void Supervisor::keep_unmeasured(const Job& job, const std::string& reason, const std::string& remedy) {
  Json record = begin_record(job, settings_);
  set_outcome(record, "error", reason, remedy);
  record["context"] = context_;
  keep(job, record);
}

}  // namespace gpulift
