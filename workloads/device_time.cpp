#include "workloads/device_time.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/cuda/handles.hpp"

namespace gpulift {
namespace {

double time_once_s(const std::function<void(cudaStream_t)>& enqueue, cudaStream_t stream) {
  const UniqueEvent begin = make_timing_event();
  const UniqueEvent end = make_timing_event();
  check(cudaEventRecord(begin.get(), stream));
  enqueue(stream);
  check(cudaEventRecord(end.get(), stream));
  check(cudaEventSynchronize(end.get()));
  float time_ms = 0;
  check(cudaEventElapsedTime(&time_ms, begin.get(), end.get()));
  return 1e-3 * static_cast<double>(time_ms);
}

}  // namespace

std::int64_t cycles_in(const Device& device, double time_s) {
  int clock_khz = 0;
  check(cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, device.index()));
  return std::llround(time_s * 1e3 * clock_khz);
}

double calibrate_s(const std::function<void(cudaStream_t)>& enqueue, cudaStream_t stream) {
  constexpr double kWarmUpS = 0.02;
  for (double spent_s = 0; spent_s < kWarmUpS;) spent_s += time_once_s(enqueue, stream);
  std::array<double, 5> times_s{};
  for (double& time_s : times_s) time_s = time_once_s(enqueue, stream);
  std::nth_element(times_s.begin(), times_s.begin() + 2, times_s.end());
  return times_s[2];
}

}  // namespace gpulift
