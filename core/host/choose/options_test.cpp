#include "options.hpp"

#include <gmock/gmock.h>

namespace gpulift {
namespace {

using testing::Contains;

Options parse(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "gpulift-bench");
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  return parse_options(static_cast<int>(pointers.size()), pointers.data());
}

/// The exit code with which parsing ended, and what it wrote.
struct Ending {
  int exit_code = -1;
  std::string output;
  std::string errors;
};

Ending ending_of(const std::vector<std::string>& arguments) {
  Ending ending;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  try {
    parse(arguments);
  } catch (const EndNow& end) {
    ending.exit_code = end.exit_code;
  }
  ending.output = testing::internal::GetCapturedStdout();
  ending.errors = testing::internal::GetCapturedStderr();
  return ending;
}

TEST(Options, HaveTheDocumentedDefaults) {
  const Options options = parse({});
  EXPECT_EQ(options.settings.launches, 3);
  EXPECT_EQ(options.settings.arm_time_s, 0.3);
  EXPECT_EQ(options.settings.precision, 0.0025);
  EXPECT_EQ(options.settings.timeout_s, 120);
  EXPECT_TRUE(options.settings.gpus.empty()) << "the cases say how many";
  EXPECT_FALSE(options.settings.quick);
  EXPECT_EQ(options.modules.filename(), "modules");
  EXPECT_TRUE(options.records.empty());
  EXPECT_FALSE(options.list);
}

TEST(Options, NameTheInterpreterOfEitherSide) {
  EXPECT_FALSE(parse({}).settings.python.empty());
  EXPECT_TRUE(parse({}).settings.base_python.empty()) << "then it is the head's";
  const Options options = parse({"--head", "h", "--base", "b", "--python", "new", "--base-python", "old"});
  EXPECT_EQ(options.settings.python, "new");
  EXPECT_EQ(options.settings.base_python, "old");
  EXPECT_EQ(ending_of({"--base-python", "old"}).exit_code, 2) << "only a duet has a base";
}

TEST(Options, QuickShortensTheTimeUnlessItIsGiven) {
  EXPECT_EQ(parse({"--quick"}).settings.arm_time_s, 0.2);
  EXPECT_EQ(parse({"--quick", "--arm-time", "0.5"}).settings.arm_time_s, 0.5);
}

TEST(Options, RepetitionsAreLaunches) {
  const Options options = parse({"--benchmark_repetitions=7"});
  EXPECT_EQ(options.settings.launches, 7);
  EXPECT_THAT(options.benchmark_arguments, Contains("--benchmark_repetitions=7").Times(1));
  EXPECT_THAT(parse({"--launches", "5"}).benchmark_arguments, Contains("--benchmark_repetitions=5").Times(1));
}

TEST(Options, GoogleBenchmarksOwnGoThroughToIt) {
  const Options options = parse({"--benchmark_out=x.json", "--benchmark_format=json", "--benchmark_filter=a|b"});
  for (const char* argument : {"--benchmark_out=x.json", "--benchmark_format=json"}) {
    EXPECT_THAT(options.benchmark_arguments, Contains(argument));
  }
  EXPECT_EQ(options.filter, "a|b");
  EXPECT_THAT(options.benchmark_arguments, Not(Contains(testing::StartsWith("--benchmark_filter"))))
      << "what was selected would be filtered again, by the arms' names alone";
}

TEST(Options, ListingIsAskedForInAllOfItsForms) {
  EXPECT_TRUE(parse({"--benchmark_list_tests"}).list);
  EXPECT_TRUE(parse({"--benchmark_list_tests=true"}).list);
  EXPECT_TRUE(parse({"--benchmark_list_tests=1"}).list);
  EXPECT_FALSE(parse({"--benchmark_list_tests=false"}).list);
}

TEST(Options, ADuetListsTheHeadsModules) {
  const Options options = parse({"--head", "new", "--base", "old"});
  EXPECT_EQ(options.modules, "new");
  EXPECT_EQ(options.base, "old");
}

TEST(Options, HelpEndsWithoutAnError) {
  const Ending help = ending_of({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.output, testing::HasSubstr("--arm-time"));
}

class WrongOption : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(WrongOption, EndsWithExitCode2AndSaysWhy) {
  const Ending ending = ending_of(GetParam());
  EXPECT_EQ(ending.exit_code, 2);
  EXPECT_FALSE(ending.errors.empty());
}

INSTANTIATE_TEST_SUITE_P(
    Arguments, WrongOption,
    testing::Values(std::vector<std::string>{"--unknown"}, std::vector<std::string>{"word"},
                    std::vector<std::string>{"--launches", "0"}, std::vector<std::string>{"--launches", "many"},
                    std::vector<std::string>{"--arm-time", "0"}, std::vector<std::string>{"--precision", "-1"},
                    std::vector<std::string>{"--timeout", "0"}, std::vector<std::string>{"--records"},
                    std::vector<std::string>{"--head", "new"}, std::vector<std::string>{"--base", "old"},
                    std::vector<std::string>{"--plant", "-0.01"}, std::vector<std::string>{"--benchmark_repetitions=0"},
                    std::vector<std::string>{"--benchmark_repetitions=2x"},
                    std::vector<std::string>{"--launches", "2", "--benchmark_repetitions=2"}));

}  // namespace
}  // namespace gpulift
