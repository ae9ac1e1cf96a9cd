#pragma once
// The rungs themselves: matmul_ladder.hpp is what others use. None looks at its arguments.

#include "core/cuda/check.hpp"
#include "kernels/matmul_ladder/matmul_ladder.hpp"

namespace gpulift {

struct RungKernel {
  void (*multiply)(const LadderProduct& product, cudaStream_t stream);
  RungResources (*resources)();
};

RungKernel naive_rung();
RungKernel tiled_rung();
RungKernel mma_unswizzled_rung();
RungKernel mma_swizzled_rung();
RungKernel mma_rung();
RungKernel wgmma_tma_rung();
RungKernel wgmma_multicast_rung();
RungKernel wgmma_rung();

/// Of a kernel that is launched with so much dynamic shared memory.
template <typename Kernel>
RungResources resources_of(Kernel* kernel, std::size_t dynamic_bytes) {
  cudaFuncAttributes found{};
  check(cudaFuncGetAttributes(&found, reinterpret_cast<const void*>(kernel)));
  return {found.numRegs, found.sharedSizeBytes + dynamic_bytes, found.localSizeBytes};
}

}  // namespace gpulift
