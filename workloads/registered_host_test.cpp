#include "workloads/registered_host.hpp"

#include "kernels/device_test.hpp"
#include "workloads/host_memory.hpp"

namespace gpulift {
namespace {

class RegisteredHostOnDevice : public DeviceTest {
 protected:
  static cudaMemoryType type_of(const void* data) {
    cudaPointerAttributes attributes{};
    check(cudaPointerGetAttributes(&attributes, data));
    return attributes.type;
  }
};

TEST_F(RegisteredHostOnDevice, LocksAndCountsForAsLongAsItLives) {
  const PageableBuffer memory(1 << 20);
  EXPECT_EQ(type_of(memory.data()), cudaMemoryTypeUnregistered);
  {
    RegisteredHost first(device(), memory.data(), memory.bytes());
    const RegisteredHost moved(std::move(first));
    EXPECT_EQ(type_of(memory.data()), cudaMemoryTypeHost);
    EXPECT_EQ(device().pinned_memory().live_bytes(), memory.bytes());
  }
  EXPECT_EQ(type_of(memory.data()), cudaMemoryTypeUnregistered);
  EXPECT_EQ(device().pinned_memory().live_bytes(), 0);
}

TEST_F(RegisteredHostOnDevice, ThrowsWhenTheMemoryIsRegisteredAlready) {
  const PageableBuffer memory(1 << 20);
  const RegisteredHost first(device(), memory.data(), memory.bytes());
  EXPECT_THROW(RegisteredHost(device(), memory.data(), memory.bytes()), Error);
  EXPECT_EQ(device().pinned_memory().live_bytes(), memory.bytes());
}

}  // namespace
}  // namespace gpulift
