#pragma once
// The rungs' own functions: matmul_ladder.hpp is what others use. None looks at its arguments.

#include "core/cuda/check.hpp"
#include "kernels/matmul_ladder/matmul_ladder.hpp"

namespace gpulift {

void multiply_naive(const LadderProduct& product, cudaStream_t stream);
void multiply_tiled(const LadderProduct& product, cudaStream_t stream);
void multiply_mma(const LadderProduct& product, cudaStream_t stream);
void multiply_wgmma(const LadderProduct& product, cudaStream_t stream);

RungResources naive_resources();
RungResources tiled_resources();
RungResources mma_resources();
RungResources wgmma_resources();

/// Of a kernel that is launched with so much dynamic shared memory.
template <typename Kernel>
RungResources resources_of(Kernel* kernel, std::size_t dynamic_bytes) {
  cudaFuncAttributes found{};
  check(cudaFuncGetAttributes(&found, reinterpret_cast<const void*>(kernel)));
  return {found.numRegs, found.sharedSizeBytes + dynamic_bytes, found.localSizeBytes};
}

}  // namespace gpulift
