#pragma once
// Work of one process on several GPUs.

#include <span>

namespace gpulift {

/// Makes another GPU the current one while it lives.
class OnGpu {
 public:
  explicit OnGpu(int gpu);
  ~OnGpu();
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;

 private:
  int before_ = 0;
};

/// From now on copies between the two take the link between them, where the driver has one for them; else it stages
/// them in the host's memory. Throws CudaError where it has none.
void enable_peer_access(int gpu, int peer);

/// Throws NotSupported where the first GPU has no NVLink to one of the others: of two GPUs only those with NVLink
/// between them have atomics on each other's memory.
void require_nvlink(std::span<const int> gpus);

}  // namespace gpulift
