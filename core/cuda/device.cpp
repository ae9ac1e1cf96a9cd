#include "device.hpp"

#include "check.hpp"

namespace gpulift {

Device::Device(int index) : index_(index) {
  check(cudaSetDevice(index));
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index));
  name_ = properties.name;
  architecture_ = 10 * properties.major + properties.minor;
  multiprocessors_ = properties.multiProcessorCount;
  l2_bytes_ = static_cast<std::size_t>(properties.l2CacheSize);
  memory_bytes_ = properties.totalGlobalMem;
}

cudaStream_t Device::side_stream(std::size_t index) {
  while (side_streams_.size() <= index) side_streams_.push_back(make_stream());
  return side_streams_[index].get();
}

std::size_t Device::free_bytes() const {
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total));
  return free;
}

}  // namespace gpulift
