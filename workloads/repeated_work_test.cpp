#include "workloads/repeated_work.hpp"

#include <cuda_runtime_api.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "kernels/device_test.hpp"
#include "kernels/fill.hpp"

namespace gpulift {
namespace {

constexpr std::size_t kBytes = 100'003;
constexpr std::int64_t kRepeats = 5;

class RepeatedWorkTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    source_.emplace(device(), kBytes);
    target_.emplace(device(), kBytes);
    verifier_.emplace(device());
    fill_pattern(source_->data(), kBytes, 3, stream());
  }

  /// A copy that is always right.
  RepeatedWork copy() {
    return {.step = [this](StreamHandle s) { copy_once(s); },
            .poison = [this](StreamHandle s) { check(cudaMemsetAsync(target_->data(), 0xFF, kBytes, s)); },
            .result = [this] { return target_->data(); },
            .result_bytes = kBytes,
            .fault = [this](StreamHandle s) { return verifier_->wrong_bytes(target_->data(), kBytes, 3, s); }};
  }

  /// The same, but one byte of one repeat comes out wrong.
  RepeatedWork copy_with_a_flip(std::int64_t at_step, std::size_t at_byte) {
    RepeatedWork work = copy();
    work.step = [this, at_step, at_byte, steps = std::int64_t{0}](StreamHandle s) mutable {
      copy_once(s);
      if (steps++ != at_step) return;
      unsigned char byte = 0;
      check(cudaMemcpyAsync(&byte, target_->data() + at_byte, 1, cudaMemcpyDeviceToHost, s));
      check(cudaStreamSynchronize(s));
      check(cudaMemsetAsync(target_->data() + at_byte, byte ^ 0x10, 1, s));
    };
    return work;
  }

  /// As the engine checks: one step after a poisoning, then the rest.
  double error_of(const RepeatedWork& work) {
    const RepeatCheck repeats(device(), kBytes);
    work.poison(stream());
    work.step(stream());
    return repeats.error(work, kRepeats, stream());
  }

 private:
  void copy_once(StreamHandle s) {
    check(cudaMemcpyAsync(target_->data(), source_->data(), kBytes, cudaMemcpyDeviceToDevice, s));
  }

  std::optional<DeviceBuffer<unsigned char>> source_;
  std::optional<DeviceBuffer<unsigned char>> target_;
  std::optional<Verifier> verifier_;
};

TEST_F(RepeatedWorkTest, ThatIsTheSameEveryTimeHasNoError) { EXPECT_EQ(error_of(copy()), 0); }

// Step 0 is the one that all others are compared with.
TEST_F(RepeatedWorkTest, AFlippedBitIsFoundInWhicheverRepeatItHappens) {
  for (std::int64_t step = 1; step < kRepeats; ++step) EXPECT_EQ(error_of(copy_with_a_flip(step, 777)), 1) << step;
  EXPECT_EQ(error_of(copy_with_a_flip(kRepeats, 777)), 2) << "in the last repeat it is a fault of the result as well";
  EXPECT_EQ(error_of(copy_with_a_flip(0, 777)), kRepeats) << "in the first result all others differ from it";
}

TEST_F(RepeatedWorkTest, AFlippedBitIsFoundInTheFirstAndInTheLastByte) {
  EXPECT_EQ(error_of(copy_with_a_flip(2, 0)), 1);
  EXPECT_EQ(error_of(copy_with_a_flip(2, kBytes - 1)), 1);
}

TEST_F(RepeatedWorkTest, AResultThatIsWrongEveryTimeIsFound) {
  RepeatedWork work = copy();
  work.step = [](StreamHandle) {};
  EXPECT_GT(error_of(work), 0.9 * kBytes);
}

TEST_F(RepeatedWorkTest, AStepThatStopsWritingIsFound) {
  RepeatedWork work = copy();
  work.step = [step = work.step, steps = 0](StreamHandle s) mutable {
    if (steps++ < 3) step(s);
  };
  EXPECT_GT(error_of(work), 0.9 * kBytes * (kRepeats - 2));
}

TEST_F(RepeatedWorkTest, AFaultThatIsNoNumberStaysNone) {
  RepeatedWork work = copy();
  work.fault = [](StreamHandle) { return std::numeric_limits<double>::quiet_NaN(); };
  EXPECT_TRUE(std::isnan(error_of(work)));
}

TEST_F(RepeatedWorkTest, AResultThatIsTooLargeIsRefused) {
  const RepeatCheck repeats(device(), kBytes - 1);
  EXPECT_THROW(repeats.error(copy(), 1, stream()), std::invalid_argument);
}

}  // namespace
}  // namespace gpulift
