#include <gtest/gtest.h>

#include "benches/host_checking_trial.hpp"

namespace gpulift {
namespace {

TEST(Foreach, CountsEveryParameterAndTheSevenValuesThatAnUpdateMoves) {
  for (const auto& [tensors, parameters] : {std::pair("many", 150 * 4096.0), std::pair("few", 4 * 4194304.0)}) {
    HostCheckingTrial trial(Point{{"tensors", std::string(tensors)}});
    technique.run(trial);
    EXPECT_EQ(trial.trial_cost().items, parameters);
    EXPECT_EQ(trial.trial_cost().bytes, 7 * sizeof(float) * parameters);
  }
}

}  // namespace
}  // namespace gpulift
