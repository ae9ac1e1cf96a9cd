#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/cuda/device.hpp"
#include "core/cuda/device_clock.hpp"
#include "core/cuda/handles.hpp"
#include "launch_counter.hpp"

namespace gpulift {
namespace {

class LaunchCounter : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess) GTEST_SKIP() << cudaGetErrorString(status);
    stream_ = make_stream();
  }

  static std::optional<std::int64_t> launches(const std::function<void()>& work) {
    return launches_during(GPULIFT_LAUNCH_COUNTER, work);
  }
  void spin() { enqueue_spin(stream_.get(), 1, nullptr); }
  void wait() { check(cudaStreamSynchronize(stream_.get())); }
  void spin_and_wait() {
    spin();
    wait();
  }

  UniqueStream stream_;
};

TEST_F(LaunchCounter, CountsKernelsCopiesAndFillsButNoEventsAndNoWaits) {
  Device device(0);
  const DeviceBuffer<std::uint64_t> from(device, 8);
  const DeviceBuffer<std::uint64_t> to(device, 8);
  const UniqueEvent event = make_timing_event();
  EXPECT_EQ(launches([&] {
              for (int i = 0; i < 3; ++i) spin();
              check(cudaMemsetAsync(from.data(), 0, 64, stream_.get()));
              check(cudaMemcpyAsync(to.data(), from.data(), 64, cudaMemcpyDeviceToDevice, stream_.get()));
              check(cudaEventRecord(event.get(), stream_.get()));
              wait();
            }),
            5);
}

TEST_F(LaunchCounter, CountsAGraphAsOne) {
  cudaGraph_t graph = nullptr;
  check(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeRelaxed));
  for (int i = 0; i < 3; ++i) spin();
  check(cudaStreamEndCapture(stream_.get(), &graph));
  cudaGraphExec_t exec = nullptr;
  check(cudaGraphInstantiate(&exec, graph, 0));
  EXPECT_EQ(launches([&] {
              check(cudaGraphLaunch(exec, stream_.get()));
              wait();
            }),
            1);
  check(cudaGraphExecDestroy(exec));
  check(cudaGraphDestroy(graph));
}

TEST_F(LaunchCounter, CountsAgainAndNothingOfNothing) {
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(launches([] {}), 0);
    EXPECT_EQ(launches([&] { spin_and_wait(); }), 1);
  }
}

TEST_F(LaunchCounter, CountsAgainAfterWorkThatThrew) {
  EXPECT_THROW(launches([] { throw std::runtime_error("of the work"); }), std::runtime_error);
  EXPECT_EQ(launches([&] { spin_and_wait(); }), 1);
}

}  // namespace
}  // namespace gpulift
