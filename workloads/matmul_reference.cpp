#include "workloads/matmul_reference.hpp"

#include <cuda_runtime_api.h>

#include <array>
#include <cmath>

#include "core/cuda/check.hpp"
#include "core/cuda/check_cublas.hpp"
#include "workloads/lt_operation.hpp"

namespace gpulift {
namespace {

std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

}  // namespace

MatmulReference::MatmulReference(Device& device, std::int64_t rows, std::int64_t columns, std::int64_t k)
    : a_(device, size(rows * k)),
      b_(device, size(columns * k)),
      product_(device, size(rows * columns)),
      sums_(device, 2),
      workspace_(device, kMatmulWorkspaceBytes) {
  check(cudaMemset(sums_.data(), 0, sums_.bytes()));
  check(cudaStreamSynchronize(nullptr));  // our streams do not wait for it
}

double* MatmulReference::multiply(const NormalMatrix& a, const Rows& rows, const NormalMatrix& b, const Rows& columns,
                                  cudaStream_t stream) {
  fill_normals(a_.data(), ElementType::kFp64, a, rows, 1, 0, stream);
  fill_normals(b_.data(), ElementType::kFp64, b, columns, 1, 0, stream);
  const LtOperation product(ElementType::kFp64, ElementType::kFp64, CUBLAS_COMPUTE_64F, CUDA_R_64F,
                            {rows.count, columns.count, a.columns});
  check(product.enqueue(a_.data(), b_.data(), product_.data(), product.candidates(1).front().algo, workspace_.data(),
                        stream));
  return product_.data();
}

void MatmulReference::compare(const ProductPart& results, cudaStream_t stream) {
  add_squared_error(results, product_.data(), sums_.data(), stream);
}

double MatmulReference::error(cudaStream_t stream) const {
  std::array<double, 2> sums{};
  check(cudaMemcpyAsync(sums.data(), sums_.data(), sums_.bytes(), cudaMemcpyDeviceToHost, stream));
  check(cudaStreamSynchronize(stream));
  return std::sqrt(sums[0] / sums[1]);
}

}  // namespace gpulift
