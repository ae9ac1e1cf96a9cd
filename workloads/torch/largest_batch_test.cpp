#include "largest_batch.hpp"

#include <gtest/gtest.h>

#include <map>
#include <stdexcept>

#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"
#include "mlp.hpp"

namespace gpulift {
namespace {

/// Counts how often each batch is asked for: a measurement is a training run.
class Peaks {
 public:
  explicit Peaks(std::function<double(double)> bytes) : bytes_(std::move(bytes)) {}
  double operator()(std::int64_t batch_size) {
    ++asked_[batch_size];
    return bytes_(static_cast<double>(batch_size));
  }
  std::size_t measurements() const { return asked_.size(); }
  bool never_twice() const {
    for (const auto& [batch_size, times] : asked_) {
      if (times > 1) return false;
    }
    return true;
  }

 private:
  std::function<double(double)> bytes_;
  std::map<std::int64_t, int> asked_;
};

TEST(LargestBatch, OfALineIsExactAfterThreeMeasurements) {
  Peaks peaks([](double batch) { return 1000 + 7 * batch; });
  EXPECT_EQ(largest_batch(std::ref(peaks), 4, 1000 + 7 * 123 + 3), 123);
  EXPECT_EQ(peaks.measurements(), 3);
}

TEST(LargestBatch, IsEnoughWithinTheLastPercentOfTheBudget) {
  Peaks peaks([](double batch) { return 100 * batch - (batch > 100 ? 50 : 0); });
  EXPECT_EQ(largest_batch(std::ref(peaks), 16, 14'550), 145);  // 146 would fit
  EXPECT_EQ(peaks.measurements(), 3);
}

TEST(LargestBatch, FitsWhereMemoryGrowsFasterThanTheLine) {
  Peaks peaks([](double batch) { return batch * batch; });
  EXPECT_EQ(largest_batch(std::ref(peaks), 4, 100), 10);
  EXPECT_TRUE(peaks.never_twice());
}

TEST(LargestBatch, FitsWhereMemoryJumps) {
  Peaks peaks([](double batch) { return batch + (batch > 20 ? 50 : 0); });
  EXPECT_EQ(largest_batch(std::ref(peaks), 4, 40), 20);
  EXPECT_TRUE(peaks.never_twice());
}

TEST(LargestBatch, MayBeBetweenTheProbes) {
  EXPECT_EQ(largest_batch([](std::int64_t batch) { return 10.0 * static_cast<double>(batch); }, 4, 65), 6);
}

TEST(LargestBatch, MayBeTheProbe) {
  EXPECT_EQ(largest_batch([](std::int64_t batch) { return 10.0 * static_cast<double>(batch); }, 4, 40), 4);
}

TEST(LargestBatch, OfABudgetBelowTheProbeIsRefused) {
  EXPECT_THROW(largest_batch([](std::int64_t) { return 10.0; }, 4, 9), std::runtime_error);
}

TEST(LargestBatch, OfMemoryThatDoesNotGrowIsRefused) {
  EXPECT_THROW(largest_batch([](std::int64_t) { return 1.0; }, 4, 9), std::runtime_error);
}

class PeakOfAStep : public DeviceTest {};

TEST_F(PeakOfAStep, CountsWeightsGradientsAndMomentsAndGrowsWithTheBatch) {
  CheckingTrial trial(device(), {});
  const TorchSession session(trial);
  const double parameters = 8 * (4096.0 * 4096 + 4096);
  const double small_bytes = peak_bytes_of_step(session, mlp_workload(64), {}, 1);
  EXPECT_GT(small_bytes, 4 * 4 * parameters);
  EXPECT_LT(small_bytes, 4 * 4 * parameters + 200e6);
  // When backward begins there are weights and moments, and the input and the output of each layer.
  EXPECT_GT(peak_bytes_of_step(session, mlp_workload(8192), {}, 1), 3 * 4 * parameters + 9 * 8192.0 * 4096 * 4);
}

}  // namespace
}  // namespace gpulift
