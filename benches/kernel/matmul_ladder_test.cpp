#include "kernels/matmul_ladder/matmul_ladder.hpp"

#include "benches/module_under_test.hpp"
#include "workloads/matmul.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

TEST(KernelMatmulLadder, HasAnArmForEachRungBehindTheLibrary) {
  std::vector<std::string> expected{"cublaslt"};
  for (const MatmulRung rung : kMatmulRungs) expected.push_back(matmul_rung_name(rung));
  EXPECT_EQ(technique->arms, expected);
}

TEST(KernelMatmulLadder, TheRungsCanTakeEveryShape) {
  for (const Value& value : technique->sweep.at(0).values) {
    const MatmulShape shape = parse_matmul_shape(std::get<std::string>(value));
    EXPECT_EQ(shape.m % 8, 0);  // the columns of a result by rows
    EXPECT_EQ(shape.k % 8, 0);
  }
}

}  // namespace
}  // namespace gpulift
