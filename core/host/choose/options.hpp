#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "axes.hpp"
#include "core/host/record/job.hpp"

namespace gpulift {

/// The command line, ours and Google Benchmark's.
struct Options {
  RunSettings settings;                // its gpus are those of gpu_names, once somebody has looked
  std::vector<std::string> gpu_names;  // as the user gave them: indices or UUIDs
  std::filesystem::path modules;
  std::vector<std::filesystem::path> more_modules;
  std::vector<AxisValues> axes;   // in place of those of the sweeps
  std::filesystem::path rows;     // file of arms to measure; empty: the filter says
  std::filesystem::path scratch;  // folder for files that techniques write; empty: the usual one
  std::filesystem::path records;  // empty: records are not kept
  std::filesystem::path recall;   // folder of records whose notes are used; empty: none
  std::filesystem::path head;     // of the duet; empty: none
  std::filesystem::path base;
  bool describe = false;
  bool health = false;
  bool gpu_indices = false;
  bool catalogue = false;
  bool list = false;
  std::string filter;
  std::vector<std::string> benchmark_arguments;  // for Google Benchmark, program name first
};

/// Prints and ends: --help (exit 0), or a wrong command line (exit 2).
struct EndNow {
  int exit_code;
};

/// Throws EndNow.
Options parse_options(int argc, char** argv);

}  // namespace gpulift
