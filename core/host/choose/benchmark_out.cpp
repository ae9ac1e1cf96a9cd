#include "benchmark_out.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string_view>
#include <system_error>

namespace gpulift {
namespace {

constexpr std::string_view kOption = "--benchmark_out=";

std::string path_of(int descriptor) { return "/proc/self/fd/" + std::to_string(descriptor); }

}  // namespace

BenchmarkOut::BenchmarkOut(std::vector<std::string>& arguments) {
  for (std::string& argument : arguments) {
    if (!argument.starts_with(kOption) || argument.size() == kOption.size()) continue;
    file_ = argument.substr(kOption.size());
    made_ = !std::filesystem::exists(std::filesystem::symlink_status(file_));
    if (!std::ofstream(file_, std::ios::app)) {
      throw std::invalid_argument("cannot write " + file_.string() + "; give --benchmark_out another file");
    }
    if (memory_ < 0) memory_ = memfd_create("benchmark_out", MFD_CLOEXEC);
    if (memory_ < 0) throw std::system_error(errno, std::generic_category(), "cannot make a file in memory");
    argument = std::string(kOption) + path_of(memory_);
  }
}

BenchmarkOut::~BenchmarkOut() {
  std::error_code ignored;
  if (made_) std::filesystem::remove(file_, ignored);
  if (memory_ >= 0) close(memory_);
}

void BenchmarkOut::write() {
  if (file_.empty()) return;
  made_ = false;
  std::ofstream file(file_, std::ios::trunc);
  // Copying nothing would count as a failure; Google Benchmark always writes something.
  file << std::ifstream(path_of(memory_)).rdbuf() << std::flush;
  if (!file) throw std::system_error(errno, std::generic_category(), "cannot write " + file_.string());
}

}  // namespace gpulift
