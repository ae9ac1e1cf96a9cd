#include "kernels/spin.hpp"

#include <cmath>

#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

class Spin : public DeviceTest {};

TEST_F(Spin, KernelsCountThemselvesWhenTheyAreGivenACounter) {
  const auto counter = upload(std::vector<std::uint64_t>{40});
  launch_empty(counter.data(), stream());
  launch_empty(nullptr, stream());
  spin(1000, counter.data(), stream());
  spin(1000, nullptr, stream());
  EXPECT_EQ(download(counter), std::vector<std::uint64_t>{42});
}

TEST_F(Spin, LastsAtLeastItsCycles) {
  constexpr std::int64_t kCycles = 20'000'000;
  int clock_khz = 0;
  check(cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, device().index()));
  const UniqueEvent begin = make_timing_event();
  const UniqueEvent end = make_timing_event();
  check(cudaEventRecord(begin.get(), stream()));
  spin(kCycles, nullptr, stream());
  check(cudaEventRecord(end.get(), stream()));
  check(cudaEventSynchronize(end.get()));
  float time_ms = 0;
  check(cudaEventElapsedTime(&time_ms, begin.get(), end.get()));
  // No multiprocessor runs faster than its highest clock; 1 % is left for the difference of the two clocks.
  EXPECT_GE(static_cast<double>(time_ms), 0.99 * static_cast<double>(kCycles) / clock_khz);
}

TEST_F(Spin, ChainIsThatOfTheHost) {
  std::vector<float> values;
  for (int i = 0; i < 1000; ++i) values.push_back(0.37F * static_cast<float>(i - 500));
  const auto input = upload(values);
  for (const int iterations : {0, 1, 15, 16, 17, 100}) {
    const auto output = upload(std::vector<float>(values.size(), -1.0F));
    fma_chain(input.data(), output.data(), values.size(), iterations, stream());
    std::vector<float> expected = values;
    for (float& x : expected) {
      for (int round = 0; round < iterations; ++round) x = std::fma(x, kChainMultiplier, kChainSummand);
    }
    EXPECT_EQ(download(output), expected) << iterations;
  }
}

}  // namespace
}  // namespace gpulift
