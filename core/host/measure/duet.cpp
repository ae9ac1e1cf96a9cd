#include "duet.hpp"

#include "case_measurement.hpp"
#include "trial.hpp"

namespace gpulift {
namespace {

Arm& arm_of(const Job& job, const PreparedArms& prepared) {
  for (Arm& arm : prepared.arms) {
    if (arm.name == job.arm) return arm;
  }
  throw std::logic_error("no arm " + job.arm + " in one of the builds");
}

Entry entry_of(const Job& job, const PreparedArms& prepared, const std::string& side) {
  Arm& arm = arm_of(job, prepared);
  Entry entry{arm, prepared.check, {.name = side + ":" + job.arm, .baseline = side == "base"}};
  entry.record.cost = arm.cost.value_or(prepared.cost);
  return entry;
}

/// An arm may note something while it is made. What the base noted otherwise than the head has its side's name.
void keep_of_both(std::map<std::string, std::string>& kept, const std::map<std::string, std::string>& head,
                  const std::map<std::string, std::string>& base) {
  for (const auto& [key, value] : head) kept[key] = value;
  for (const auto& [key, value] : base) {
    const auto same = head.find(key);
    if (same == head.end() || same->second != value) kept["base:" + key] = value;
  }
}

}  // namespace

// One build's case runs inside the other's compare(), so that the arms of both live at the same time. What the outer
// one searched and noted (an algorithm, a calibrated length), the inner one recalls: else both would be right and not
// the same. The outer one makes its buffers and streams first, which has an effect of its own (seen: 1 % in copies of
// both directions at once): every two launches they change places, so that four launches hold each order of arms with
// each. The seed counts, too: a gate takes its launches in several runs, whose seeds go on where the launches of the
// run before ended, and each run numbers its own from 0.
void measure_duet(const Job& job, LaunchContext& launch, const Technique& head, const Technique& base,
                  CaseRecord& record) {
  CaseMeasurement measurement(job, launch, head, record);
  const bool head_outside = (launch.settings.seed + static_cast<std::uint64_t>(job.launch)) / 2 % 2 == 0;
  Job outer_job = job;
  outer_job.side = head_outside ? "" : "base";
  run_up_to_compare(head_outside ? head : base, outer_job, launch, [&](const PreparedArms& outer) {
    if (head_outside) record.notes = outer.said.notes;
    Job inner_job = job;
    inner_job.side = head_outside ? "base" : "";
    for (const auto& [key, value] : outer.said.notes) inner_job.recalled[key] = value;
    run_up_to_compare(head_outside ? base : head, inner_job, launch, [&](const PreparedArms& inner) {
      const PreparedArms& ours = head_outside ? outer : inner;
      const PreparedArms& theirs = head_outside ? inner : outer;
      std::vector<Entry> entries;
      entries.push_back(entry_of(job, theirs, "base"));
      entries.push_back(entry_of(job, ours, "head"));
      measurement.measure(std::move(entries));
      keep_of_both(record.notes, ours.said.notes, theirs.said.notes);
      record.versions.insert(ours.said.versions.begin(), ours.said.versions.end());
      if (!ours.said.scratch.is_null()) record.scratch = ours.said.scratch;
    });
  });
}

}  // namespace gpulift
