#include "benches/module_under_test.hpp"
#include "workloads/matmul.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

TEST(CeilingGemmSet, HasAllTenShapesOfThePublishedSetAndTheirSum) {
  const std::vector<Value>& shapes = technique->sweep.at(0).values;
  ASSERT_EQ(shapes.size(), 11U);
  EXPECT_EQ(std::get<std::string>(shapes.back()), "all");
  double flops = 0;
  for (std::size_t i = 0; i + 1 < shapes.size(); ++i) {
    const MatmulShape shape = parse_matmul_shape(std::get<std::string>(shapes[i]));
    EXPECT_TRUE(shape.n == 32 || shape.n == 32768) << to_string(shape);
    flops += shape.flops();
  }
  EXPECT_EQ(flops, 2.0 * (32 + 32768) * (2112 * 7168 + 3072 * 1536 + 7168 * 2048 + 4608 * 7168 + 7168 * 256));
}

TEST(CeilingGemmSet, ArmsAreMatmulTypesAndTheSetIsNoRoof) {
  for (const std::string& arm : technique->arms) EXPECT_EQ(matmul_type_name(parse_matmul_type(arm)), arm);
  EXPECT_FALSE(technique->ceiling);
}

}  // namespace
}  // namespace gpulift
