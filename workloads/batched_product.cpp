#include "workloads/batched_product.hpp"

#include <cublasLt.h>

#include <stdexcept>

#include "core/cuda/check_cublas.hpp"
#include "workloads/lt_operation.hpp"

namespace gpulift {
namespace {

UniqueLtLayout make_batch(ElementType type, std::int64_t rows, std::int64_t columns, std::int64_t count) {
  UniqueLtLayout layout = make_lt_layout(type, rows, columns);
  const auto matrices = static_cast<std::int32_t>(count);
  const std::int64_t stride = rows * columns;
  check(cublasLtMatrixLayoutSetAttribute(layout.get(), CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &matrices, sizeof matrices));
  check(cublasLtMatrixLayoutSetAttribute(layout.get(), CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                         sizeof stride));
  return layout;
}

UniqueLtOperation make_operation(ElementType type, const BatchedShape& shape) {
  if (type != ElementType::kBf16 && type != ElementType::kFp64) {
    throw std::invalid_argument("BatchedProduct: bf16 and fp64 alone");
  }
  const bool exact = type == ElementType::kFp64;
  UniqueLtOperation operation =
      make_lt_operation(exact ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F, exact ? CUDA_R_64F : CUDA_R_32F);
  const cublasOperation_t a = shape.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t b = shape.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  check(cublasLtMatmulDescSetAttribute(operation.get(), CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a));
  check(cublasLtMatmulDescSetAttribute(operation.get(), CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b));
  return operation;
}

}  // namespace

class BatchedProduct::Impl {
 public:
  Impl(ElementType type, const BatchedShape& shape)
      : exact_(type == ElementType::kFp64),
        operation_(make_operation(type, shape)),
        library_(make_lt_library()),
        a_(shape.transpose_a ? make_batch(type, shape.k, shape.m, shape.count)
                             : make_batch(type, shape.m, shape.k, shape.count)),
        b_(shape.transpose_b ? make_batch(type, shape.n, shape.k, shape.count)
                             : make_batch(type, shape.k, shape.n, shape.count)),
        d_(make_batch(type, shape.m, shape.n, shape.count)) {
    const UniqueLtPreference preference = make_lt_preference(CUBLASLT_REDUCTION_SCHEME_MASK);
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    check(cublasLtMatmulAlgoGetHeuristic(library_.get(), operation_.get(), a_.get(), b_.get(), d_.get(), d_.get(),
                                         preference.get(), 1, &found, &count));
    if (count == 0 || found.state != CUBLAS_STATUS_SUCCESS) {
      throw NotSupported("cuBLASLt has no algorithm for these batched products on this device");
    }
    algorithm_ = found.algo;
  }

  void enqueue(const void* a, const void* b, void* d, void* workspace, cudaStream_t stream) const {
    constexpr float kOne = 1;
    constexpr float kZero = 0;
    constexpr double kExactOne = 1;
    constexpr double kExactZero = 0;
    const void* one = exact_ ? static_cast<const void*>(&kExactOne) : &kOne;
    const void* zero = exact_ ? static_cast<const void*>(&kExactZero) : &kZero;
    check(cublasLtMatmul(library_.get(), operation_.get(), one, a, a_.get(), b, b_.get(), zero, d, d_.get(), d,
                         d_.get(), &algorithm_, workspace, kMatmulWorkspaceBytes, stream));
  }

 private:
  bool exact_;
  UniqueLtOperation operation_;
  UniqueLtLibrary library_;
  UniqueLtLayout a_;
  UniqueLtLayout b_;
  UniqueLtLayout d_;
  cublasLtMatmulAlgo_t algorithm_{};
};

BatchedProduct::BatchedProduct(ElementType type, const BatchedShape& shape)
    : impl_(std::make_unique<Impl>(type, shape)) {}
BatchedProduct::~BatchedProduct() = default;
BatchedProduct::BatchedProduct(BatchedProduct&&) noexcept = default;

void BatchedProduct::enqueue(const void* a, const void* b, void* d, void* workspace, cudaStream_t stream) const {
  impl_->enqueue(a, b, d, workspace, stream);
}

}  // namespace gpulift
