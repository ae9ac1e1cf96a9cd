#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace gpulift {

/// The file of --benchmark_out. Google Benchmark opens it only after everything was measured, and does not notice when
/// it cannot be written: so it is given a file in memory instead, whose content is then written with a check.
class BenchmarkOut {
 public:
  /// Exchanges the file in Google Benchmark's arguments, if they name one. Throws std::invalid_argument when it cannot
  /// be opened for writing. A file that was not there before and is never written goes with the object.
  explicit BenchmarkOut(std::vector<std::string>& arguments);
  ~BenchmarkOut();
  BenchmarkOut(const BenchmarkOut&) = delete;
  BenchmarkOut& operator=(const BenchmarkOut&) = delete;

  /// Writes what Google Benchmark wrote. Throws std::runtime_error when the disk is full.
  void write();

 private:
  std::filesystem::path file_;  // empty: none was asked for
  bool made_ = false;           // it was not there, and is still empty
  int memory_ = -1;
};

}  // namespace gpulift
