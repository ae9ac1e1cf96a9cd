#include "workloads/gemm_ex.hpp"

#include "core/cuda/check_cublas.hpp"
#include "workloads/lt_operation.hpp"

namespace gpulift {

GemmEx::GemmEx(Device& device) : workspace_(device, kMatmulWorkspaceBytes) {}

void GemmEx::enqueue(const MatmulShape& stored, const Matmul::Buffers& buffers, cudaStream_t stream) const {
  const auto m = static_cast<int>(stored.m);
  const auto n = static_cast<int>(stored.n);
  const auto k = static_cast<int>(stored.k);
  const float one = 1;
  const float zero = 0;
  check(cublasSetStream(handle_.get(), stream));  // which gives the workspace back
  check(cublasSetWorkspace(handle_.get(), workspace_.data(), workspace_.bytes()));
  check(cublasGemmEx(handle_.get(), CUBLAS_OP_T, CUBLAS_OP_N, m, n, k, &one, buffers.a, CUDA_R_16BF, k, buffers.b,
                     CUDA_R_16BF, k, &zero, buffers.d, CUDA_R_16BF, m, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

}  // namespace gpulift
