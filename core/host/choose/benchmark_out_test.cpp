#include "benchmark_out.hpp"

#include <gmock/gmock.h>

#include <fstream>
#include <sstream>
#include <stdexcept>

#include "core/harness/testing/temporary_folder.hpp"

namespace gpulift {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

class BenchmarkOutTest : public testing::Test {
 protected:
  /// Writes as Google Benchmark does, to the file that its argument names.
  static void write_as_google_benchmark(const std::vector<std::string>& arguments, const std::string& text) {
    std::ofstream(arguments.at(1).substr(arguments.at(1).find('=') + 1)) << text;
  }

  const TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
};

TEST_F(BenchmarkOutTest, PutsThereWhatGoogleBenchmarkWrote) {
  const auto file = folder_ / "out.json";
  std::ofstream(file) << "something longer from an earlier run";
  std::vector<std::string> arguments{"program", "--benchmark_out=" + file.string()};
  BenchmarkOut out(arguments);
  write_as_google_benchmark(arguments, "{\"new\": 1}\n");
  out.write();
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  EXPECT_EQ(text.str(), "{\"new\": 1}\n");
}

TEST_F(BenchmarkOutTest, LeavesNoEmptyFileWhereNothingWasWritten) {
  std::vector<std::string> arguments{"program", "--benchmark_out=" + (folder_ / "out.json").string()};
  {
    const BenchmarkOut out(arguments);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(BenchmarkOutTest, KeepsAnEarlierFileWhereNothingWasWritten) {
  const auto file = folder_ / "out.json";
  std::ofstream(file) << "earlier";
  std::vector<std::string> arguments{"program", "--benchmark_out=" + file.string()};
  {
    const BenchmarkOut out(arguments);
  }
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  EXPECT_EQ(text.str(), "earlier");
}

TEST_F(BenchmarkOutTest, KeepsALinkThatLedNowhere) {
  const auto link = folder_ / "link";
  std::filesystem::create_symlink(folder_ / "out.json", link);
  std::vector<std::string> arguments{"program", "--benchmark_out=" + link.string()};
  {
    const BenchmarkOut out(arguments);
  }
  EXPECT_TRUE(std::filesystem::is_symlink(link));
}

TEST_F(BenchmarkOutTest, LeavesOtherArgumentsAlone) {
  const std::vector<std::string> before{"program", "--benchmark_out_format=csv", "--benchmark_out="};
  auto arguments = before;
  BenchmarkOut out(arguments);
  EXPECT_EQ(arguments, before);
  EXPECT_NO_THROW(out.write());
}

TEST_F(BenchmarkOutTest, AFileThatCannotBeOpenedIsSaidBeforeAnythingRuns) {
  std::vector<std::string> arguments{"program", "--benchmark_out=" + (folder_ / "none" / "out.json").string()};
  EXPECT_THAT([&] { const BenchmarkOut out(arguments); },
              ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr("out.json"), HasSubstr("another file"))));
}

TEST_F(BenchmarkOutTest, AFullDiskIsAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "this system has no /dev/full";
  std::vector<std::string> arguments{"program", "--benchmark_out=/dev/full"};
  BenchmarkOut out(arguments);
  write_as_google_benchmark(arguments, "{}\n");
  EXPECT_THAT([&] { out.write(); },
              ThrowsMessage<std::runtime_error>(AllOf(StartsWith("cannot write /dev/full"), HasSubstr("No space"))));
}

}  // namespace
}  // namespace gpulift
