#include "device_clock.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "buffer.hpp"
#include "check.hpp"
#include "device.hpp"

namespace gpulift {
namespace {

class DeviceClock : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess) GTEST_SKIP() << cudaGetErrorString(status);
    device_.emplace(0);
    stream_ = make_stream();
    // Loads the kernels: that waits for the device, and would for ever behind a hold.
    Hold warm_up;
    warm_up.engage(stream_.get(), 1);
    warm_up.release();
    SmClock clock(device_->multiprocessors());
    clock.sample_begin(stream_.get());
    enqueue_spin(stream_.get(), 1, nullptr);
    check(cudaStreamSynchronize(stream_.get()));
  }

  bool is_idle() const { return cudaStreamQuery(stream_.get()) == cudaSuccess; }

  std::optional<Device> device_;
  UniqueStream stream_;
};

TEST_F(DeviceClock, AHoldHoldsUntilItIsReleased) {
  Hold hold;
  hold.engage(stream_.get(), 20);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(is_idle());
  hold.release();
  check(cudaStreamSynchronize(stream_.get()));
  EXPECT_FALSE(hold.timed_out());
}

TEST_F(DeviceClock, AHoldThatNobodyReleasesEndsByItself) {
  Hold hold;
  hold.engage(stream_.get(), 0.01);
  check(cudaStreamSynchronize(stream_.get()));
  EXPECT_TRUE(hold.timed_out());
}

TEST_F(DeviceClock, AHoldCanBeUsedAgain) {
  Hold hold;
  hold.engage(stream_.get(), 0.01);
  check(cudaStreamSynchronize(stream_.get()));
  hold.engage(stream_.get(), 20);
  EXPECT_FALSE(is_idle());
  hold.release();
  check(cudaStreamSynchronize(stream_.get()));
  EXPECT_FALSE(hold.timed_out());
}

TEST_F(DeviceClock, ASpinLastsAsLongAsTheEventsSay) {
  constexpr std::uint64_t kCycles = 20'000'000;
  PinnedBuffer<unsigned long long> spun(*device_, 1);
  SmClock clock(device_->multiprocessors());
  const UniqueEvent begin = make_timing_event();
  const UniqueEvent end = make_timing_event();
  clock.sample_begin(stream_.get());
  check(cudaEventRecord(begin.get(), stream_.get()));
  enqueue_spin(stream_.get(), kCycles, spun.data());
  check(cudaEventRecord(end.get(), stream_.get()));
  clock.sample_end(stream_.get());
  check(cudaStreamSynchronize(stream_.get()));
  float elapsed_ms = 0;
  check(cudaEventElapsedTime(&elapsed_ms, begin.get(), end.get()));
  EXPECT_GE(*spun.data(), kCycles);
  EXPECT_LE(*spun.data(), kCycles + 10'000);
  ASSERT_TRUE(clock.mean_hz());
  const auto cycles = static_cast<double>(*spun.data());
  EXPECT_NEAR(static_cast<double>(elapsed_ms) * 1e-3 * *clock.mean_hz(), cycles, 0.005 * cycles);
}

TEST_F(DeviceClock, WithoutSamplesThereIsNoClock) {
  SmClock clock(device_->multiprocessors());
  EXPECT_FALSE(clock.mean_hz());
  clock.sample_begin(stream_.get());
  check(cudaStreamSynchronize(stream_.get()));
  EXPECT_FALSE(clock.mean_hz()) << "one end alone says nothing";
}

TEST_F(DeviceClock, BuffersAreCountedWhileTheyLive) {
  const std::size_t before_bytes = device_->memory().live_bytes();
  {
    DeviceBuffer<int> first(*device_, 1000);
    const DeviceBuffer<int> moved = std::move(first);
    EXPECT_EQ(device_->memory().live_bytes(), before_bytes + 4000);
    const PinnedBuffer<char> pinned(*device_, 10);
    EXPECT_EQ(device_->pinned_memory().live_bytes(), 10U);
  }
  EXPECT_EQ(device_->memory().live_bytes(), before_bytes);
  EXPECT_EQ(device_->memory().peak_bytes(), before_bytes + 4000);
  EXPECT_EQ(device_->pinned_memory().live_bytes(), 0U);
}

TEST_F(DeviceClock, TooMuchMemoryIsSaidAndForgotten) {
  EXPECT_THROW(DeviceBuffer<char>(*device_, 2 * device_->memory_bytes()), OutOfMemory);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

// Needs no device: the codes alone decide.
TEST(Check, ThrowsWhatTheCodeMeans) {
  EXPECT_NO_THROW(check(cudaSuccess));
  EXPECT_THROW(check(cudaErrorMemoryAllocation), OutOfMemory);
  EXPECT_THROW(check(cudaErrorNotSupported), NotSupported);
  try {
    check(cudaErrorInvalidValue);
    FAIL() << "an error code passed";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("CUDA: cudaErrorInvalidValue: invalid argument (device_clock_test.cpp:"), std::string::npos)
        << text;
  }
}

}  // namespace
}  // namespace gpulift
