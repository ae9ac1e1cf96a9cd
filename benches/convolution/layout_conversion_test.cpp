#include "benches/module_under_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

TEST(ConvolutionLayoutConversion, HasACaseBoundByLaunchesAndOneBoundByMemory) {
  const auto bytes_of = [](std::size_t value) {
    const auto images = std::get<std::int64_t>(technique->sweep.at(0).values.at(value));
    const auto side = std::get<std::int64_t>(technique->sweep.at(1).values.at(value));
    return images * 256 * side * side * 2;
  };
  EXPECT_LT(bytes_of(0), 1 << 20);
  EXPECT_GT(bytes_of(1), 64 << 20);
}

}  // namespace
}  // namespace gpulift
