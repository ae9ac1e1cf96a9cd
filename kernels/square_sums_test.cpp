#include "kernels/square_sums.hpp"

#include <cmath>
#include <limits>

#include "kernels/device_test.hpp"
#include "kernels/pattern.hpp"

namespace gpulift {
namespace {

/// Tensors of all kinds of tails, one of them empty. What lies behind each would show in its sum.
class SquareSums : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    for (const std::size_t count : counts_) {
      std::vector<__nv_bfloat16>& values = values_.emplace_back();
      for (std::size_t i = 0; i < count; ++i) {
        values.push_back(__float2bfloat16(static_cast<float>(random_bits(count, i) >> 40) / 8388608.0F - 1));
      }
      first_.push_back(first_.back() + (count + kSquaresPiece - 1) / kSquaresPiece);
    }
    upload_values();
  }
  void upload_values() {
    on_device_.clear();
    std::vector<NormedTensor> tensors;
    for (const std::vector<__nv_bfloat16>& values : values_) {
      std::vector<__nv_bfloat16> guarded = values;
      guarded.resize(values.size() + 16, __float2bfloat16(1000));
      tensors.push_back({on_device_.emplace_back(upload(guarded)).data(), values.size()});
    }
    tensors_.emplace(upload(tensors));
  }

  std::vector<float> norms() {
    const auto pieces = upload(cut_tensors(counts_, kSquaresPiece));
    const auto first = upload(first_);
    const DeviceBuffer<float> sums(device(), pieces.size());
    const auto roots = upload(std::vector<float>(counts_.size() + 1, -1));
    square_sums(tensors_->data(), pieces.data(), pieces.size(), sums.data(), stream());
    roots_of_sums(sums.data(), first.data(), counts_.size(), roots.data(), stream());
    norm_of_norms(roots.data(), counts_.size(), roots.data() + counts_.size(), stream());
    return download(roots);
  }

  const std::vector<std::size_t> counts_{8, 1, 7, 0, 9, kSquaresPiece - 1, kSquaresPiece, kSquaresPiece + 1, 100'001};
  std::vector<std::vector<__nv_bfloat16>> values_;
  std::optional<DeviceBuffer<NormedTensor>> tensors_;
  std::vector<DeviceBuffer<__nv_bfloat16>> on_device_;

 private:
  std::vector<std::size_t> first_{0};
};

TEST_F(SquareSums, NormsAreThoseOfDoublePrecisionAndTheLastIsThatOfAll) {
  const std::vector<float> found = norms();
  double all = 0;
  for (std::size_t t = 0; t < counts_.size(); ++t) {
    double sum = 0;
    for (const __nv_bfloat16 value : values_[t]) sum += std::pow(static_cast<double>(__bfloat162float(value)), 2);
    EXPECT_NEAR(static_cast<double>(found[t]), std::sqrt(sum), 1e-6 * std::sqrt(sum)) << counts_[t];
    all += sum;
  }
  EXPECT_NEAR(static_cast<double>(found.back()), std::sqrt(all), 1e-6 * std::sqrt(all));
}

TEST_F(SquareSums, EqualDataGivesEqualBits) {
  const std::vector<float> first = norms();
  EXPECT_EQ(norms(), first);
}

TEST_F(SquareSums, OneNanShowsInItsTensorAndInAll) {
  values_.back().back() = __float2bfloat16(std::numeric_limits<float>::quiet_NaN());
  upload_values();
  const std::vector<float> found = norms();
  EXPECT_TRUE(std::isnan(found[counts_.size() - 1]));
  EXPECT_TRUE(std::isnan(found.back()));
  for (std::size_t t = 0; t + 1 < counts_.size(); ++t) EXPECT_FALSE(std::isnan(found[t])) << counts_[t];
}

TEST_F(SquareSums, TheReferenceAddsInDoublePrecision) {
  for (std::size_t t = 0; t < counts_.size(); ++t) {
    double wanted = 2;
    for (const __nv_bfloat16 value : values_[t]) wanted += std::pow(static_cast<double>(__bfloat162float(value)), 2);
    const auto sum = upload(std::vector<double>{2});
    square_sum_reference({on_device_[t].data(), counts_[t]}, sum.data(), stream());
    EXPECT_NEAR(download(sum).front(), wanted, 1e-12 * wanted) << counts_[t];
  }
}

TEST_F(SquareSums, NoTensorHasTheNormZero) {
  const auto norm = upload(std::vector<float>{-1});
  norm_of_norms(nullptr, 0, norm.data(), stream());
  EXPECT_EQ(download(norm), std::vector<float>{0});
}

}  // namespace
}  // namespace gpulift
