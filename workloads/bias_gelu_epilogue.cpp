#include "workloads/bias_gelu_epilogue.hpp"

#include <cublasLt.h>

#include "core/cuda/check.hpp"
#include "kernels/bias_gelu.hpp"
#include "kernels/matmul_epilogue.hpp"
#include "workloads/matmul_operand.hpp"

namespace gpulift {

BiasGeluEpilogue::BiasGeluEpilogue(Device& device, MatmulEpilogue way, const MatmulShape& shape, std::uint64_t seed,
                                   std::int64_t sets, LtOperation& operation)
    : way_(way), shape_(shape), bias_(device, ElementType::kBf16, shape.m, 1) {
  fill_rows(bias_, {~seed, shape.m}, {1, 1, shape.m});
  if (way_ != MatmulEpilogue::kBiasGelu) kept_.emplace(device, ElementType::kBf16, shape.m * shape.n, sets);
  if (way_ == MatmulEpilogue::kBiasGeluApart) return;
  operation.set(CUBLASLT_MATMUL_DESC_EPILOGUE, kept_ ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_BIAS);
  operation.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(bias()));
  if (!kept_) return;
  operation.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, shape.m);
  operation.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, kept_->at(0));
}

void* BiasGeluEpilogue::product_of(std::int64_t set, void* result, LtOperation& operation) const {
  if (way_ == MatmulEpilogue::kBiasGeluApart) return kept_->at(set);
  if (kept_) operation.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, kept_->at(set));
  return result;
}

void BiasGeluEpilogue::finish(std::int64_t set, void* result, cudaStream_t stream) const {
  if (way_ != MatmulEpilogue::kBiasGeluApart) return;
  bias_gelu({.count = static_cast<std::size_t>(shape_.m * shape_.n),
             .columns = static_cast<int>(shape_.m),
             .input = static_cast<const __nv_bfloat16*>(kept_->at(set)),
             .bias = bias(),
             .output = static_cast<__nv_bfloat16*>(result)},
            stream);
}

void BiasGeluEpilogue::poison(cudaStream_t stream) const {
  if (kept_) check(cudaMemsetAsync(kept_->at(0), 0xFF, kept_->bytes(), stream));
}

void BiasGeluEpilogue::apply_to(double* expected, const Rows& rows, std::int64_t columns,
                                const std::function<void(const MatrixSet& kept)>& compare, cudaStream_t stream) const {
  if (way_ == MatmulEpilogue::kBiasGeluApart) compare(*kept_);
  add_bias(expected, rows, columns, bias(), stream);
  if (way_ == MatmulEpilogue::kBiasGeluKept) compare(*kept_);
  apply_gelu(expected, rows.count * columns, stream);
}

}  // namespace gpulift
