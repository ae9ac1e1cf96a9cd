#include "kernels/dependent_chain.hpp"

#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

TEST(AfterChain, IsAnotherValueAfterEachKernelAndGoesOnWhereItWas) {
  EXPECT_EQ(after_chain(0, 7), 7U);
  EXPECT_NE(after_chain(1, 7), after_chain(2, 7));
  EXPECT_EQ(after_chain(5, 7), after_chain(2, after_chain(3, 7)));
}

TEST(WhyNoProgrammaticLaunch, NamesWhatIsNeededAndWhatIsThere) {
  EXPECT_EQ(why_no_programmatic_launch(89),
            "programmatic dependent launch needs compute capability 9.0 or later; this device has 8.9");
  EXPECT_NE(why_no_programmatic_launch(75).find("has 7.5"), std::string::npos);
  EXPECT_NE(why_no_programmatic_launch(80).find("has 8.0"), std::string::npos);
  EXPECT_EQ(why_no_programmatic_launch(90), "");
  EXPECT_EQ(why_no_programmatic_launch(120), "");
}

class DependentChain : public DeviceTest, public testing::WithParamInterface<ChainLaunch> {};

TEST_P(DependentChain, EveryKernelSeesWhatTheOneBeforeLeft) {
  if (GetParam() == ChainLaunch::kProgrammatic && !why_no_programmatic_launch(device().architecture()).empty()) {
    GTEST_SKIP() << why_no_programmatic_launch(device().architecture());
  }
  for (const std::int64_t kernels : {0, 1, 2, 500}) {
    for (const std::int64_t cycles : {0, 5000}) {
      const DeviceBuffer<std::uint64_t> value = upload<std::uint64_t>({7});
      dependent_chain(kernels, cycles, value.data(), GetParam(), stream());
      EXPECT_EQ(download(value).at(0), after_chain(kernels, 7)) << kernels << " kernels of " << cycles << " cycles";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Launches, DependentChain, testing::Values(ChainLaunch::kSerial, ChainLaunch::kProgrammatic),
                         [](const auto& tested) {
                           return tested.param == ChainLaunch::kSerial ? "serial" : "programmatic";
                         });

}  // namespace
}  // namespace gpulift
