// For builds without CUDA.
#include <stdexcept>

#include "device_session.hpp"

namespace gpulift {

int device_count() { return 0; }

std::variant<DeviceFacts, NoDevice> find_device(int /*index*/) {
  return NoDevice{"built without CUDA", "build with GPULIFT_CUDA=ON and a CUDA toolkit of version 13.0 or later"};
}

std::unique_ptr<DeviceSession> open_device(int /*index*/) { throw std::logic_error("built without CUDA"); }

}  // namespace gpulift
