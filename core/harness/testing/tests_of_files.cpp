// The tests of many files in one program: `--file=<folder>/<name>` runs those of <name>_test.cpp in such a folder. They
// are found by the file that they stand in, so that nothing lists them.
#include <gtest/gtest.h>

#include <iostream>
#include <string>
#include <string_view>

namespace {

/// A filter for the cases of that file; empty where there is none.
std::string cases_of(const std::string& file) {
  const std::string ending = "/" + file + "_test.cpp";
  std::string filter;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const testing::TestInfo& test = *suite.GetTestInfo(j);
      if (std::string_view(test.file()).ends_with(ending))
        filter += std::string(suite.name()) + "." + test.name() + ":";
    }
  }
  return filter;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  constexpr std::string_view kFlag = "--file=";
  if (argc > 1 && std::string_view(argv[1]).starts_with(kFlag)) {
    const std::string file(std::string_view(argv[1]).substr(kFlag.size()));
    const std::string filter = cases_of(file);
    if (filter.empty()) {
      std::cerr << file << "_test.cpp has no test in this program\n";
      return 1;
    }
    GTEST_FLAG_SET(filter, filter);
  }
  return RUN_ALL_TESTS();
}
