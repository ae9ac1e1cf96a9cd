#pragma once
// For tests that need a device: skipped where there is none.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <optional>
#include <vector>

#include "core/cuda/buffer.hpp"
#include "core/cuda/device.hpp"
#include "core/cuda/handles.hpp"

namespace gpulift {

class DeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) GTEST_SKIP() << "no CUDA device";
    device_.emplace(0);
    stream_ = make_stream();
  }

  Device& device() { return *device_; }
  cudaStream_t stream() const { return stream_.get(); }

  template <typename T>
  DeviceBuffer<T> upload(const std::vector<T>& host) {
    DeviceBuffer<T> data(device(), host.size());
    check(cudaMemcpy(data.data(), host.data(), data.bytes(), cudaMemcpyHostToDevice));
    check(cudaDeviceSynchronize());  // the copy may return before it arrives, and our streams do not wait for it
    return data;
  }

  /// After everything on the stream.
  template <typename T>
  std::vector<T> download(const DeviceBuffer<T>& data) {
    std::vector<T> host(data.size());
    check(cudaStreamSynchronize(stream()));
    check(cudaMemcpy(host.data(), data.data(), data.bytes(), cudaMemcpyDeviceToHost));
    return host;
  }

 private:
  std::optional<Device> device_;
  UniqueStream stream_;
};

}  // namespace gpulift
