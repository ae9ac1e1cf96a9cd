#include "kernels/matmul_epilogue.hpp"

#include <cmath>
#include <vector>

#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

double gelu(double x) { return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }

double as_double(__nv_bfloat16 number) { return static_cast<double>(static_cast<float>(number)); }

using MatmulEpilogue = DeviceTest;

TEST_F(MatmulEpilogue, TheReferenceAddsEachRowsBiasAndTakesTheSameFunction) {
  std::vector<__nv_bfloat16> bias;
  for (int row = 0; row < 16; ++row) bias.emplace_back(static_cast<float>(row) / 8 - 1);
  const auto bias_device = upload(bias);
  const auto values = upload(std::vector<double>{0.5, -0.5, 1.5, -3});
  add_bias(values.data(), {3, 2, 1}, 2, bias_device.data(), stream());  // rows 3 and 4 by two columns
  apply_gelu(values.data(), 4, stream());
  const auto found = download(values);
  EXPECT_DOUBLE_EQ(found[0], gelu(0.5 + as_double(bias[3])));
  EXPECT_DOUBLE_EQ(found[1], gelu(-0.5 + as_double(bias[4])));
  EXPECT_DOUBLE_EQ(found[2], gelu(1.5 + as_double(bias[3])));
  EXPECT_DOUBLE_EQ(found[3], gelu(-3 + as_double(bias[4])));
}

}  // namespace
}  // namespace gpulift
