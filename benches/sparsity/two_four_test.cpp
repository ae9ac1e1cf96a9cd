#include "benches/module_under_test.hpp"
#include "workloads/matmul.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

TEST(SparsityTwoFour, SidesSuitTheLibrary) {
  for (const Value& value : technique->sweep.at(0).values) {
    const MatmulShape shape = parse_matmul_shape(std::get<std::string>(value));
    for (const std::int64_t side : {shape.m, shape.n, shape.k}) EXPECT_EQ(side % 16, 0) << to_string(shape);
  }
}

}  // namespace
}  // namespace gpulift
