#include "options.hpp"

#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>

#include "core/harness/process.hpp"

namespace gpulift {
namespace {

/// Throws CLI::ValidationError for a file that cannot be read.
nlohmann::ordered_json given_ranks_in(const std::string& file) {
  std::ifstream stream(file);
  auto given = nlohmann::ordered_json::parse(stream, nullptr, /*allow_exceptions=*/false);
  if (!given.is_object()) throw CLI::ValidationError("--given-ranks " + file, "is no description of ranks");
  return given;
}

constexpr const char* kFooter = R"(Google Benchmark's options select and report:
  --benchmark_filter=REGEX  --benchmark_list_tests  --benchmark_repetitions=N (the launches)
  --benchmark_out=FILE  --benchmark_out_format=json|console|csv  --benchmark_format=console|json|csv
  --benchmark_counters_tabular  --benchmark_report_aggregates_only  --benchmark_color=auto|true|false

--records DIR with records in it goes on with that run: what is there is not measured again, except what ended in an
error; then the later record counts. Records of another card, driver, build or settings are refused.

Exit codes: 0 measured (skips included), 1 a case failed or had an error, or the output could not be written, 2 wrong
usage or unusable folder, 4 the records in the folder are of another card, driver or build, 77 nothing could run here,
130 interrupted.)";

/// The value of `--name=value`, if the argument is that.
std::optional<std::string> value_of(const std::string& argument, const std::string& name) {
  const std::string start = "--" + name + "=";
  return argument.starts_with(start) ? std::optional(argument.substr(start.size())) : std::nullopt;
}

[[noreturn]] void refuse(const std::string& why) {
  std::cerr << "gpulift-bench: " << why << "; see --help\n";
  throw EndNow{2};
}

int positive_number(const std::string& text) {
  std::size_t used = 0;
  int number = 0;
  try {
    number = std::stoi(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used != text.size() || number < 1)
    refuse("--benchmark_repetitions needs a whole number above 0, not '" + text + "'");
  return number;
}

void take_benchmark_arguments(Options& options, const std::vector<std::string>& remaining, bool launches_given) {
  for (const std::string& argument : remaining) {
    if (!argument.starts_with("--benchmark_") && !argument.starts_with("--v=")) refuse("unknown option " + argument);
    if (const auto filter = value_of(argument, "benchmark_filter")) {
      options.filter = *filter;  // select_cases() takes it
      continue;
    }
    if (const auto launches = value_of(argument, "benchmark_repetitions")) {
      if (launches_given) refuse("give --launches or --benchmark_repetitions, not both");
      options.settings.launches = positive_number(*launches);
      continue;
    }
    const auto list = value_of(argument, "benchmark_list_tests");
    options.list = options.list || argument == "--benchmark_list_tests" || (list && *list != "false" && *list != "0");
    options.benchmark_arguments.push_back(argument);
  }
  options.benchmark_arguments.push_back("--benchmark_repetitions=" + std::to_string(options.settings.launches));
}

}  // namespace

Options parse_options(int argc, char** argv) {
  Options options;
  options.benchmark_arguments.emplace_back(argv[0]);
  options.modules = std::filesystem::path(own_program()).parent_path() / "modules";
  CLI::App app("Measures what GPU training techniques are worth on this machine, case by case.", "gpulift-bench");
  app.footer(kFooter);
  app.allow_extras();
  RunSettings& settings = options.settings;
  auto* launches = app.add_option("--launches", settings.launches, "Processes that measure each case (default 3)");
  launches->check(CLI::Range(1, 1000));
  app.add_flag("--quick", settings.quick, "Only the cases that tell most per second, with shorter windows");
  auto* arm_time = app.add_option("--arm-time", settings.arm_time_s,
                                  "Seconds per arm, case and launch (default 0.3; with --quick 0.2)");
  arm_time->check(CLI::PositiveNumber);
  auto* precision = app.add_option(
      "--precision", settings.precision,
      "Stop a case early when the half-width of its running interval is below (default 0.0025; duet 0.0005)");
  precision->check(CLI::PositiveNumber);
  app.add_option(
         "--timeout", settings.timeout_s,
         "Seconds of silence after which a case is stopped (default 120; eight times as long for whole training steps)")
      ->check(CLI::PositiveNumber);
  app.add_option("--seed", settings.seed, "Seed of inputs and orders (default 1)");
  app.add_option("--gpus,--gpu", options.gpu_names,
                 "The GPUs by index, as 0,1, or by UUID or its start, or all: one alone is measured on the first "
                 "(default: 0, and as many more as the chosen cases need)")
      ->delimiter(',');
  app.add_option("--scratch", options.scratch,
                 "Folder on the disk to measure, for files that are removed again (default /var/tmp)");
  app.add_option("--modules", options.modules, "Folder of technique modules (default: beside this program)");
  app.add_option("--more-modules", options.more_modules, "Folder of further techniques; may be repeated");
  app.add_option_function<std::vector<std::string>>(
         "--axis",
         [&options](const std::vector<std::string>& texts) {
           for (const std::string& text : texts) options.axes.push_back(parse_axis(text));
         },
         "Values of an axis in place of the sweep's, as rows=4096,8192; may be repeated. Numbers are free, words those "
         "of the sweep. Techniques without the axis are left out, cases of the sweep stay what they are")
      ->type_name("NAME=VALUE,...")
      ->allow_extra_args(false);
  app.add_option("--rows", options.rows,
                 "File of what to measure, an arm a line: technique, case and arm with tabs between; the baseline is "
                 "measured with it");
  app.add_option("--records", options.records, "Folder for records; a run that was broken off there is gone on with");
  app.add_option("--recall", options.recall, "Folder of records of this card: what a search chose there is used again");
  auto* head = app.add_option("--head", options.head, "Duet: folder of modules to judge, timed against --base");
  auto* base = app.add_option("--base", options.base, "Duet: folder of modules to judge against");
  app.add_option("--plant", settings.plant,
                 "To test what is found: slow the head of a duet, or else every arm, down by this fraction")
      ->check(CLI::Range(1e-6, 10.0));
  app.add_flag("--profile", settings.profile,
               "Time nothing: after warm-up take one step of each chosen arm, alone between cudaProfilerStart and "
               "cudaProfilerStop, for ncu --profile-from-start off around this program")
      ->excludes(base);
  app.add_flag("--prove-checks", settings.prove_checks,
               "To test techniques: fail each arm in C++ whose check passes before the arm has taken a step");
  app.add_option_function<std::string>(
         "--given-ranks", [&settings](const std::string& file) { settings.given = given_ranks_in(file); },
         "File that says which ranks a launcher started, and how they are reached; gpulift run --ranks given writes it")
      ->type_name("FILE");
  app.add_option("--python", settings.python,
                 "Interpreter of Python arms; in a duet the head's (default: that of ./gpulift or of the build)");
  app.add_option("--base-python", settings.base_python, "Duet: the base's interpreter, where it is another")
      ->needs(base);
  head->needs(base);
  base->needs(head);
  app.add_flag("--describe", options.describe, "Print what is known of this machine as JSON");
  app.add_flag("--health", options.health, "Print the state of the GPU (errors, links, limits, other users) as JSON");
  app.add_flag("--gpu-indices", options.gpu_indices, "Print the indices of the GPUs that --gpus names as JSON");
  app.add_flag("--catalogue", options.catalogue, "Print all techniques and cases as JSON");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    throw EndNow{code == 0 ? 0 : 2};
  }
  if (settings.quick && arm_time->count() == 0) settings.arm_time_s = 0.2;
  if (!options.base.empty() && precision->count() == 0) settings.precision = 0.0005;
  take_benchmark_arguments(options, app.remaining(), launches->count() > 0);
  if (!options.head.empty()) options.modules = options.head;
  return options;
}

}  // namespace gpulift
