#include "peers.hpp"

#include <cuda_runtime_api.h>

#include "core/cuda/check.hpp"
#include "core/cuda/error.hpp"

namespace gpulift {

OnGpu::OnGpu(int gpu) {
  check(cudaGetDevice(&before_));
  check(cudaSetDevice(gpu));
}

OnGpu::~OnGpu() { static_cast<void>(cudaSetDevice(before_)); }

void enable_peer_access(int gpu, int peer) {
  const OnGpu here(gpu);
  const cudaError_t status = cudaDeviceEnablePeerAccess(peer, 0);
  static_cast<void>(cudaGetLastError());  // where it is enabled already, that counts as an error
  if (status != cudaErrorPeerAccessAlreadyEnabled) check(status);
}

void require_nvlink(std::span<const int> gpus) {
  for (const int other : gpus.subspan(gpus.empty() ? 0 : 1)) {
    int atomics = 0;
    check(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, gpus.front(), other));
    if (atomics == 0) throw NotSupported("there is no NVLink between the GPUs");
  }
}

}  // namespace gpulift
