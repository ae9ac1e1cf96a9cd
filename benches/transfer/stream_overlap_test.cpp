#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

class StreamOverlap : public DeviceTest {
 protected:
  static Point point(const char* ratio) { return {{"copy_to_compute", ratio}, {"bytes", kBytes}}; }
  static constexpr std::int64_t kBytes = (std::int64_t{1} << 20) + 4;  // no number of chunks divides it
};

TEST_F(StreamOverlap, CountsTheCopyAndTheChainAndBoundsThemByTheLinkWhereItDoes) {
  const CheckingTrial copies(*technique, device(), point("4_to_1"), {{"iterations", "10"}});
  EXPECT_EQ(copies.results().at("chunks_4").cost.bytes, kBytes);
  EXPECT_EQ(copies.results().at("chunks_4").cost.flops, 2.0 * 10 * kBytes / 4);
  EXPECT_EQ(copies.results().at("chunks_4").cost.roof, "host_link/h2d");
  const CheckingTrial computes(*technique, device(), point("1_to_4"), {{"iterations", "10"}});
  EXPECT_EQ(computes.results().at("chunks_4").cost.roof, "");
}

TEST_F(StreamOverlap, LaterLaunchesDoTheSameWork) {
  const CheckingTrial first(*technique, device(), point("1_to_4"));
  const CheckingTrial second(*technique, device(), point("1_to_4"), first.notes());
  EXPECT_EQ(second.notes().at("iterations"), first.notes().at("iterations"));
  EXPECT_EQ(second.results().at("one_stream").cost.flops, first.results().at("one_stream").cost.flops);
}

}  // namespace
}  // namespace gpulift
