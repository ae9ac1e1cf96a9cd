// gpulift-bench: the one program that measures. See options.cpp for its command line.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iostream>
#include <memory>
#include <numeric>
#include <set>
#include <system_error>

#include "core/harness/channel.hpp"
#include "core/harness/lock.hpp"
#include "core/harness/scratch.hpp"
#include "core/harness/usable_folder.hpp"
#include "core/host/choose/benchmark_front.hpp"
#include "core/host/choose/benchmark_out.hpp"
#include "core/host/choose/gpu_names.hpp"
#include "core/host/choose/noted.hpp"
#include "core/host/choose/options.hpp"
#include "core/host/choose/rows.hpp"
#include "core/host/measure/machine_context.hpp"
#include "core/host/measure/module_loader.hpp"
#include "core/host/processes/interrupt.hpp"
#include "core/host/processes/launch.hpp"
#include "core/host/processes/supervisor.hpp"
#include "core/host/processes/worker.hpp"
#include "core/host/record/catalogue.hpp"

namespace gpulift {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr int kNotComparable = 4;
constexpr int kBusy = 75;  // EX_TEMPFAIL of sysexits.h
constexpr int kNothingRan = 77;
constexpr int kInterrupted = 130;

/// Arguments: the module, the manifest, the hashes of its source files, and for a module of LibTorch the version.py of
/// its Python package.
int write_manifest(const std::vector<std::string>& arguments) {
  const Module module(arguments.at(0));
  auto manifest = manifest_of(module.id(), own_abi_tag(), module.technique());
  manifest["source"] = source_in(arguments.at(2));
  if (arguments.size() > 3) manifest["torch"] = torch_in(arguments[3]);
  std::ofstream file(arguments.at(1));
  file << manifest.dump(1) << '\n';
  return file.good() ? 0 : 1;
}

std::string duet_file(const std::filesystem::path& folder, const TechniqueInfo& technique) {
  return (folder / technique.module.filename()).string();
}

/// The jobs of one launch: a case each, or for a duet an arm of a case each.
std::vector<Job> jobs_of(const std::vector<SelectedCase>& selected, const Options& options) {
  std::vector<Job> jobs;
  for (const SelectedCase& one : selected) {
    Job job;
    job.technique = one.technique->id;
    job.module = one.technique->module;
    job.case_id = one.info->id;
    job.point = one.info->point;
    job.quick = one.info->quick;
    job.off_sweep = one.info->off_sweep;
    job.regime = one.info->regime;
    job.whole_steps = one.technique->whole_steps;
    job.gpus = one.info->gpus;
    job.all_workers = job.gpus > 1 || one.technique->python == one.technique->arms;
    if (one.technique->is_script()) job.script = one.technique->manifest;
    job.about = about_technique(one.technique->manifest);
    if (options.base.empty()) {
      job.arms = options.settings.profile ? one.arms : measured_arms(one);
      jobs.push_back(job);
      continue;
    }
    job.base_module = duet_file(options.base, *one.technique);
    for (const std::string& arm : one.arms) {
      job.arm = arm;
      jobs.push_back(job);
    }
  }
  return jobs;
}

/// One run at a time on a GPU; on a machine without one, one run at a time on its cores.
std::vector<std::unique_ptr<FileLock>> lock_machine(const std::vector<std::string>& cards) {
  std::vector<std::unique_ptr<FileLock>> locks;
  if (cards.empty()) locks.push_back(std::make_unique<FileLock>(lock_path("host"), "this machine"));
  // In one order, so that two runs never wait for each other; a card that is named twice is one.
  for (const std::string& card : std::set<std::string>(cards.begin(), cards.end()))
    locks.push_back(std::make_unique<FileLock>(lock_path(card), "GPU " + card));
  return locks;
}

int first_gpu(const Options& options) { return options.settings.gpus.empty() ? 0 : options.settings.gpus.front(); }

std::vector<std::string> visible_uuids() {
  std::vector<std::string> uuids;
  for (int index = 0; index < device_count(); ++index) {
    const auto found = find_device(index);
    const auto* const facts = std::get_if<DeviceFacts>(&found);
    uuids.push_back(facts != nullptr ? facts->uuid : "");
  }
  return uuids;
}

/// Those that the user named, or else the first ones: as many as the cases need, as far as they are there.
std::vector<int> gpus_of(const Options& options, const std::vector<SelectedCase>& selected) {
  const auto& named = options.settings.gpus;
  if (std::set<int>(named.begin(), named.end()).size() != named.size())
    throw std::invalid_argument("--gpus names a GPU twice");
  if (!named.empty()) return named;
  int needed = 1;
  for (const SelectedCase& one : selected) needed = std::max(needed, one.info->gpus);
  std::vector<int> gpus(static_cast<std::size_t>(std::max(1, std::min(needed, device_count()))));
  std::iota(gpus.begin(), gpus.end(), 0);
  return gpus;
}

/// Cards of all GPUs of the run, the first being that of the context. Throws std::invalid_argument for one that is not
/// there: where the first is missing, what needs none is measured.
std::vector<std::string> cards_of(const std::vector<int>& gpus) {
  std::vector<std::string> cards;
  for (const int gpu : gpus) {
    const auto found = find_device(gpu);
    if (const auto* facts = std::get_if<DeviceFacts>(&found)) {
      cards.push_back(facts->gpu.at("card"));
    } else if (gpus.size() > 1) {
      const auto& none = std::get<NoDevice>(found);
      throw std::invalid_argument("--gpus: " + none.reason + "; " + none.remedy);
    }
  }
  return cards;
}

int exit_code_of(const std::vector<RecordSummary>& records) {
  const auto any = [&](const char* outcome) {
    return std::any_of(records.begin(), records.end(),
                       [&](const RecordSummary& record) { return record.outcome == outcome; });
  };
  const bool has_failed_arm = std::any_of(records.begin(), records.end(),
                                          [](const RecordSummary& record) { return !record.failed_arm.empty(); });
  if (any("failed") || any("error") || has_failed_arm) return kFailed;
  return any("ok") ? 0 : kNothingRan;
}

// The library keeps a pointer to the first argument: the arguments must outlive it.
void initialize_google_benchmark(const std::vector<std::string>& arguments) {
  std::vector<char*> pointers;
  for (const std::string& argument : arguments)
    pointers.push_back(const_cast<char*>(argument.c_str()));  // NOLINT: its signature
  int count = static_cast<int>(pointers.size());
  benchmark::Initialize(&count, pointers.data());
  if (benchmark::ReportUnrecognizedArguments(count, pointers.data())) throw EndNow{kUsage};
}

/// With the axes of the options, which rows or filter apply to.
std::vector<TechniqueInfo> with_axes(const std::vector<TechniqueInfo>& catalogue, const Options& options) {
  if (options.axes.empty()) return catalogue;
  std::set<std::string> named;
  if (!options.rows.empty()) {
    for (const Row& row : read_rows(options.rows)) named.insert(row.technique);
  }
  return with_axes(catalogue, options.axes, [&](const TechniqueInfo& technique) {
    return options.rows.empty() ? is_selected(technique, options.filter) : named.contains(technique.id);
  });
}

/// What to measure, by rows or by filter.
RowSelection select(const std::vector<TechniqueInfo>& catalogue, const Options& options) {
  if (!options.rows.empty()) return select_rows(catalogue, read_rows(options.rows));
  return {select_cases(catalogue, options.filter, options.settings.quick),
          unavailable_techniques(catalogue, options.filter)};
}

/// Says why nothing matched: techniques that were not built have no cases, and are no mistake of the user.
int explain_no_case(const std::vector<const TechniqueInfo*>& unavailable, const std::string& filter) {
  for (const TechniqueInfo* technique : unavailable) {
    std::cerr << "gpulift-bench: " << technique->id << " cannot run here: " << technique->unavailable
              << (technique->remedy.empty() ? "" : "; " + technique->remedy) << '\n';
  }
  if (!unavailable.empty()) return kNothingRan;
  std::cerr << "gpulift-bench: no case matches the filter '" << filter << "'; --benchmark_list_tests shows all\n";
  return kUsage;
}

/// A duet has its records; Google Benchmark has no notion of two builds in one benchmark.
void refuse_report_of_duet(const std::vector<std::string>& benchmark_arguments) {
  for (const std::string& argument : benchmark_arguments) {
    if (!argument.starts_with("--benchmark_out")) continue;
    throw std::invalid_argument("a duet has no Google Benchmark report: give --records DIR instead of " + argument);
  }
}

/// What the folder for temporary files has to serve for: a duet loads the modules of the base from copies in it, which
/// stay on the disk while their process runs.
FolderNeeds temporary_needs(const std::vector<Job>& jobs) {
  FolderNeeds needs;
  std::set<std::filesystem::path> copied;
  for (const Job& job : jobs) {
    if (job.is_duet() && job.script.is_null()) copied.insert(job.base_module);
  }
  for (const auto& module : copied) {
    std::error_code missing;  // which is said of the case
    const auto bytes = std::filesystem::file_size(module, missing);
    if (!missing) needs.free_bytes += static_cast<double>(bytes);
  }
  needs.runs_code = !copied.empty();
  return needs;
}

int measure(const Options& options, const std::vector<SelectedCase>& selected, BenchmarkOut& out) {
  const auto jobs = jobs_of(selected, options);
  require_temporary_folder(temporary_needs(jobs));
  Progress progress;
  RunSettings settings = options.settings;
  settings.gpus = gpus_of(options, selected);
  Machine machine = look_at_machine(settings.gpus.front());
  add_settings(machine.context, settings);
  const auto locks = lock_machine(cards_of(settings.gpus));
  const ScratchRoot scratch(options.scratch);
  settings.scratch = scratch.path().string();
  settings.scratch_missing = scratch.missing();
  if (!scratch.missing().empty()) progress.say("Without files: " + scratch.missing() + "; --scratch names another");
  std::unique_ptr<RecordFolder> folder;
  if (!options.records.empty()) {
    folder = std::make_unique<RecordFolder>(options.records, [&](const std::string& line) { progress.say(line); });
    require_same_run(folder->records(), machine.context);
  }
  if (!machine.device) progress.say("No GPU: " + machine.no_device.reason + ". " + machine.no_device.remedy);
  notice_interrupts();
  if (!settings.given.is_null()) die_with_parent();  // through which alone the other ranks are reached
  Supervisor supervisor(settings, folder.get(), machine.context, progress);
  if (!options.recall.empty()) supervisor.recall(noted_in(options.recall, machine.context));
  if (!supervisor.records().empty()) {
    progress.say("Going on with a run of which " + std::to_string(supervisor.records().size()) + " records are there.");
  }
  if (!supervisor.run(jobs)) {
    progress.say("Interrupted: " + std::to_string(supervisor.records().size()) + " records are kept.");
    return kInterrupted;
  }
  if (options.base.empty()) {
    report_benchmarks(selected, supervisor.records(), machine.context);
    out.write();
  }
  return exit_code_of(supervisor.records());
}

int refuse(const std::exception& error, int exit_code = kUsage) {
  std::cerr << "gpulift-bench: " << error.what() << '\n';
  return exit_code;
}

/// The exit code, unless what was printed got lost: a full disk shows only when the output is flushed.
int after_output(int exit_code) {
  if (std::cout.flush()) return exit_code;
  const std::string why = std::generic_category().message(errno);
  std::cerr << "gpulift-bench: cannot write to the standard output: " << why << '\n';
  return kFailed;
}

int run(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() == 1 && arguments[0] == "--serve-launch") return serve_launch();
  if (arguments.size() == 1 && arguments[0] == "--serve-worker") return serve_worker();
  if (arguments.size() == 2 && arguments[0] == "--is-preloaded") return answer_preloaded(arguments[1]);
  if (arguments.size() >= 3 && arguments[0] == "--write-manifest")
    return write_manifest({arguments.begin() + 1, arguments.end()});
  Options options = parse_options(argc, argv);
  options.settings.gpus = gpu_indices(options.gpu_names, visible_uuids);
  if (options.gpu_indices) {
    std::cout << nlohmann::ordered_json(options.settings.gpus).dump() << '\n';
    return 0;
  }
  if (options.describe) {
    std::cout << look_at_machine(first_gpu(options)).context.dump(1) << '\n';
    return 0;
  }
  if (options.health) {
    std::cout << look_at_health(first_gpu(options)).dump(1) << '\n';
    return 0;
  }
  std::vector<std::filesystem::path> folders{options.modules};
  folders.insert(folders.end(), options.more_modules.begin(), options.more_modules.end());
  const auto catalogue = with_axes(read_catalogue(folders), options);
  if (options.catalogue) {
    auto all = nlohmann::ordered_json::array();
    for (const TechniqueInfo& technique : catalogue) all.push_back(technique.manifest);
    std::cout << all.dump(1) << '\n';
    return 0;
  }
  if (!options.base.empty() && !options.list) refuse_report_of_duet(options.benchmark_arguments);
  BenchmarkOut out(options.benchmark_arguments);
  initialize_google_benchmark(options.benchmark_arguments);
  const auto [selected, unavailable] = select(catalogue, options);
  if (selected.empty()) return explain_no_case(unavailable, options.filter);
  if (options.list) {
    list_benchmarks(selected);
    return 0;
  }
  return measure(options, selected, out);
}

}  // namespace
}  // namespace gpulift

int main(int argc, char** argv) {
  try {
    return gpulift::after_output(gpulift::run(argc, argv));
  } catch (const gpulift::EndNow& end) {
    return gpulift::after_output(end.exit_code);
  } catch (const gpulift::InUse& error) {
    return gpulift::refuse(error, gpulift::kBusy);
  } catch (const std::invalid_argument& error) {
    return gpulift::refuse(error);
  } catch (const gpulift::CatalogueError& error) {
    return gpulift::refuse(error);
  } catch (const gpulift::RecordError& error) {
    return gpulift::refuse(error);
  } catch (const gpulift::OtherSettings& error) {
    return gpulift::refuse(error);
  } catch (const gpulift::NotComparable& error) {
    return gpulift::refuse(error, gpulift::kNotComparable);
  } catch (const std::exception& error) {
    return gpulift::refuse(error, gpulift::kFailed);
  }
}
