#include "case_run.hpp"

#include <fstream>

#include "case_measurement.hpp"
#include "core/cuda/error.hpp"
#include "core/harness/scratch.hpp"
#include "core/host/record/catalogue.hpp"
#include "core/host/record/record.hpp"
#include "duet.hpp"
#include "module_loader.hpp"
#include "trial.hpp"

namespace gpulift {
namespace {

using Json = nlohmann::ordered_json;

void keep(CaseRecord& record, const Said& said) {
  for (const auto& [key, value] : said.notes) record.notes[key] = value;
  for (const auto& [library, version] : said.versions) record.versions[library] = version;
  if (!said.scratch.is_null()) record.scratch = said.scratch;
}

void measure_technique(const Job& job, LaunchContext& launch, const Technique& technique, CaseRecord& record) {
  CaseMeasurement measurement(job, launch, technique, record);
  keep(record, run_up_to_compare(technique, job, launch, [&](const PreparedArms& prepared) {
         std::vector<Entry> entries;
         for (Arm& arm : prepared.arms) {
           entries.push_back({arm, prepared.check, {.name = arm.name, .baseline = entries.empty()}});
           entries.back().record.cost = arm.cost.value_or(prepared.cost);
         }
         measurement.measure(std::move(entries));
       }));
}

void require_gpus(const Job& job, int least, const LaunchContext& launch) {
  const int needed = std::max(least, job.gpus);
  if (least > 0 && !launch.has_gpu) throw Skipped(launch.no_device.reason, launch.no_device.remedy);
  // Each given rank has its own, maybe on another host; the first needs one here.
  const bool given = !launch.settings.given.is_null();
  const auto there = given ? needed : static_cast<int>(launch.settings.gpus.size());
  if (needed <= 1 || (launch.has_gpu && needed <= there)) return;
  throw Skipped(
      "it needs " + std::to_string(needed) + " GPUs, and the run has " + std::to_string(launch.has_gpu ? there : 0),
      "on a machine with more, name them: --gpus 0,1,...");
}

/// Of a script of the other build.
Json manifest_beside(const std::filesystem::path& script) {
  std::ifstream file(std::filesystem::path(script).replace_extension(".json"));
  Json manifest = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!manifest.is_object() || !manifest.value("script", false)) throw Skipped("the base has no such technique", "");
  return manifest;
}

void measure_job(const Job& job, LaunchContext& launch, CaseRecord& record) {
  if (!job.script.is_null()) {
    const Technique script = technique_of_script(job.script);
    require_gpus(job, script.gpus, launch);
    if (!job.is_duet()) return measure_technique(job, launch, script, record);
    return measure_duet(job, launch, script, technique_of_script(manifest_beside(job.base_module)), record);
  }
  const Module head(job.module);
  require_gpus(job, head.technique().gpus, launch);
  const Range range(launch.device, full_case_id(job.technique, job.case_id));
  if (!job.is_duet()) return measure_technique(job, launch, head.technique(), record);
  const Module base = Module::load_copy(job.base_module);
  measure_duet(job, launch, head.technique(), base.technique(), record);
}

/// The case's files go with it, and those that a worker left when it was killed. Its shared memory is a folder of its
/// own, since a killed launch would leave gigabytes of memory until the run ends.
class ScratchOfCase {
 public:
  explicit ScratchOfCase(const RunSettings& settings, Job job) : head_(scratch_of_case(settings, job)) {
    job.side = "base";
    base_ = scratch_of_case(settings, job);
    clear();
    std::error_code ignored;  // whoever needs it says so
    if (job.is_duet() && !base_.empty()) std::filesystem::create_directory(base_.parent_path(), ignored);
  }
  const std::filesystem::path& shared() const { return shared_.path(); }
  ~ScratchOfCase() { clear(); }
  ScratchOfCase(const ScratchOfCase&) = delete;
  ScratchOfCase& operator=(const ScratchOfCase&) = delete;

 private:
  void clear() const {
    std::error_code ignored;  // what cannot be removed now goes with the folder of the run
    for (const auto& folder : {head_, base_}) {
      if (!folder.empty()) std::filesystem::remove_all(folder, ignored);
    }
  }

  std::filesystem::path head_;
  std::filesystem::path base_;
  const ScratchRoot shared_ = ScratchRoot::in_shared_memory();
};

Result result_of(Job job, LaunchContext& launch, CaseRecord& record) {
  try {
    const double start_s = now_s();
    const ScratchOfCase scratch(launch.settings, job);
    job.shared = scratch.shared();
    measure_job(job, launch, record);
    record.time_s["total"] = now_s() - start_s;
    return {};
  } catch (const Skipped& skipped) {
    return {Outcome::kSkipped, skipped.what(), skipped.remedy()};
  } catch (const OutOfMemory& exhausted) {
    return out_of_memory(exhausted);
  } catch (const NotSupported& unsupported) {
    return {Outcome::kSkipped, unsupported.what()};
  } catch (const Failed& failed) {
    return {Outcome::kFailed, failed.what()};
  } catch (const std::domain_error& not_finite) {
    return {Outcome::kFailed, not_finite.what()};
  } catch (const std::exception& error) {
    return {Outcome::kError, error.what(), remedy_of_error(job)};
  }
}

}  // namespace

Json run_case(const Job& job, LaunchContext& launch) {
  CaseRecord record;
  record.result = result_of(job, launch, record);
  try {
    return to_json(record, job, launch.settings, launch.context, launch.gpus);
  } catch (const std::domain_error& not_finite) {
    CaseRecord failed;
    failed.started_at = record.started_at;
    failed.result = {Outcome::kFailed, not_finite.what()};
    failed.notes = record.notes;
    return to_json(failed, job, launch.settings, launch.context, launch.gpus);
  }
}

}  // namespace gpulift
