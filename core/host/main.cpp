// gpulift-bench: the one program that measures. See options.cpp for its command line.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iostream>
#include <system_error>

#include "benchmark_front.hpp"
#include "benchmark_out.hpp"
#include "catalogue.hpp"
#include "core/harness/lock.hpp"
#include "interrupt.hpp"
#include "launch.hpp"
#include "machine_context.hpp"
#include "module_loader.hpp"
#include "noted.hpp"
#include "options.hpp"
#include "supervisor.hpp"
#include "worker.hpp"

namespace gpulift {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr int kNotComparable = 4;
constexpr int kNothingRan = 77;
constexpr int kInterrupted = 130;

/// Arguments: the module, the manifest, and for a module of LibTorch the version.py of its Python package.
int write_manifest(const std::vector<std::string>& arguments) {
  const Module module(arguments.at(0));
  auto manifest = manifest_of(module.id(), own_abi_tag(), module.technique());
  if (arguments.size() > 2) manifest["torch"] = torch_in(arguments[2]);
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
    job.regime = one.info->regime;
    job.whole_steps = one.technique->whole_steps;
    job.about = about_technique(one.technique->manifest);
    if (options.base.empty()) {
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
FileLock lock_machine(const nlohmann::ordered_json& context) {
  if (!context.contains("gpu")) return {lock_path("host"), "this machine"};
  const std::string card = context.at("gpu").at("card");
  return {lock_path(card), "GPU " + card};
}

int exit_code_of(const std::vector<nlohmann::ordered_json>& records) {
  const auto any = [&](const char* outcome) {
    return std::any_of(records.begin(), records.end(),
                       [&](const auto& record) { return record.at("outcome") == outcome; });
  };
  if (any("failed") || any("error")) return kFailed;
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

/// Says why nothing matched: techniques that were not built have no cases, and are no mistake of the user.
int explain_no_case(const std::vector<TechniqueInfo>& catalogue, const std::string& filter) {
  const auto unavailable = unavailable_techniques(catalogue, filter);
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

int measure(const Options& options, const std::vector<SelectedCase>& selected, BenchmarkOut& out) {
  Progress progress;
  Machine machine = look_at_machine(options.settings.gpu);
  machine.context["options"] = options_of(options.settings);
  const FileLock lock = lock_machine(machine.context);
  std::unique_ptr<RecordFolder> folder;
  if (!options.records.empty()) {
    folder = std::make_unique<RecordFolder>(options.records, [&](const std::string& line) { progress.say(line); });
    require_same_run(folder->records(), machine.context);
  }
  if (!machine.device) progress.say("No GPU: " + machine.no_device.reason + ". " + machine.no_device.remedy);
  notice_interrupts();
  Supervisor supervisor(options.settings, folder.get(), machine.context, progress);
  if (!options.recall.empty()) supervisor.recall(noted_in(options.recall, machine.context));
  if (!supervisor.records().empty()) {
    progress.say("Going on with a run of which " + std::to_string(supervisor.records().size()) + " records are there.");
  }
  if (!supervisor.run(jobs_of(selected, options))) {
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
  if (options.describe) {
    std::cout << look_at_machine(options.settings.gpu).context.dump(1) << '\n';
    return 0;
  }
  if (options.health) {
    std::cout << look_at_health(options.settings.gpu).dump(1) << '\n';
    return 0;
  }
  const auto catalogue = read_catalogue(options.modules);
  if (options.catalogue) {
    auto all = nlohmann::ordered_json::array();
    for (const TechniqueInfo& technique : catalogue) all.push_back(technique.manifest);
    std::cout << all.dump(1) << '\n';
    return 0;
  }
  if (!options.base.empty() && !options.list) refuse_report_of_duet(options.benchmark_arguments);
  BenchmarkOut out(options.benchmark_arguments);
  initialize_google_benchmark(options.benchmark_arguments);
  const auto selected = select_cases(catalogue, options.filter, options.settings.quick);
  if (selected.empty()) return explain_no_case(catalogue, options.filter);
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
    return gpulift::refuse(error);
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
