#pragma once
// cuBLASLt's descriptors of one matrix product, owned. For the matrix products of this folder; others use matmul.hpp.

#include <cublasLt.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "core/cuda/check_cublas.hpp"
#include "kernels/matmul_data.hpp"
#include "workloads/matmul_plan.hpp"

namespace gpulift {

inline constexpr std::size_t kMatmulWorkspaceBytes = std::size_t{64} << 20;  // twice what cuBLAS advises for Hopper

inline cudaDataType lt_type(ElementType type) {
  switch (type) {
    case ElementType::kFp64:
      return CUDA_R_64F;
    case ElementType::kFp32:
      return CUDA_R_32F;
    case ElementType::kFp16:
      return CUDA_R_16F;
    case ElementType::kBf16:
      return CUDA_R_16BF;
    case ElementType::kFp8E4m3:
      return CUDA_R_8F_E4M3;
    case ElementType::kFp4E2m1:
      return CUDA_R_4F_E2M1;
    case ElementType::kInt8:
      return CUDA_R_8I;
    case ElementType::kInt32:
      return CUDA_R_32I;
  }
  throw std::invalid_argument("no such element type");
}

template <auto Destroy>
struct DestroyLtWith {
  template <typename T>
  void operator()(T* handle) const noexcept {
    static_cast<void>(Destroy(handle));
  }
};
using UniqueLtLibrary = std::unique_ptr<std::remove_pointer_t<cublasLtHandle_t>, DestroyLtWith<cublasLtDestroy>>;
using UniqueLtOperation =
    std::unique_ptr<std::remove_pointer_t<cublasLtMatmulDesc_t>, DestroyLtWith<cublasLtMatmulDescDestroy>>;
using UniqueLtLayout =
    std::unique_ptr<std::remove_pointer_t<cublasLtMatrixLayout_t>, DestroyLtWith<cublasLtMatrixLayoutDestroy>>;
using UniqueLtPreference =
    std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>, DestroyLtWith<cublasLtMatmulPreferenceDestroy>>;

inline UniqueLtLibrary make_lt_library() {
  cublasLtHandle_t handle = nullptr;
  check(cublasLtCreate(&handle));
  return UniqueLtLibrary(handle);
}

inline UniqueLtOperation make_lt_operation(cublasComputeType_t compute, cudaDataType scale_type) {
  cublasLtMatmulDesc_t operation = nullptr;
  check(cublasLtMatmulDescCreate(&operation, compute, scale_type));
  return UniqueLtOperation(operation);
}

inline UniqueLtLayout make_lt_layout(ElementType type, std::int64_t rows, std::int64_t columns) {
  cublasLtMatrixLayout_t layout = nullptr;
  check(cublasLtMatrixLayoutCreate(&layout, lt_type(type), static_cast<std::uint64_t>(rows),
                                   static_cast<std::uint64_t>(columns), rows));
  return UniqueLtLayout(layout);
}

inline void set_lt_batch(cublasLtMatrixLayout_t layout, std::int32_t count, std::int64_t stride) {
  check(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
  check(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride));
}

/// `reduction` is a mask of cublasLtReductionScheme_t: how partial sums may be added.
inline UniqueLtPreference make_lt_preference(std::uint32_t reduction) {
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference));
  UniqueLtPreference owner(preference);
  check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &kMatmulWorkspaceBytes, sizeof kMatmulWorkspaceBytes));
  check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduction,
                                             sizeof reduction));
  return owner;
}

/// Splits the sum over k, partial sums being added in the type of the sum. False where the algorithm cannot.
inline bool split_lt_sum(cublasLtMatmulAlgo_t& algorithm, std::int32_t parts) {
  const std::uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  return cublasLtMatmulAlgoConfigSetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts, sizeof parts) ==
             CUBLAS_STATUS_SUCCESS &&
         cublasLtMatmulAlgoConfigSetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &reduction,
                                              sizeof reduction) == CUBLAS_STATUS_SUCCESS;
}

template <typename T>
bool copy_lt_attribute(const cublasLtMatmulAlgo_t& from, cublasLtMatmulAlgo_t& to,
                       cublasLtMatmulAlgoConfigAttributes_t attribute) {
  T value{};
  std::size_t written = 0;
  return cublasLtMatmulAlgoConfigGetAttribute(&from, attribute, &value, sizeof value, &written) ==
             CUBLAS_STATUS_SUCCESS &&
         cublasLtMatmulAlgoConfigSetAttribute(&to, attribute, &value, sizeof value) == CUBLAS_STATUS_SUCCESS;
}

/// D = A^T B in the library's column order: A is k x m, B is k x n, D is m x n, none padded.
class LtOperation {
 public:
  LtOperation(ElementType input, ElementType output, cublasComputeType_t compute, cudaDataType scale_type,
              const MatmulShape& shape)
      : library_(make_lt_library()),
        operation_(make_lt_operation(compute, scale_type)),
        a_(make_lt_layout(input, shape.k, shape.m)),
        b_(make_lt_layout(input, shape.k, shape.n)),
        d_(make_lt_layout(output, shape.m, shape.n)),
        input_(lt_type(input)),
        output_(lt_type(output)),
        compute_(compute),
        scale_type_(scale_type) {
    set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  }

  /// So many products whose operands and results lie behind each other.
  void batch(std::int32_t count, const MatmulShape& shape) {
    set_lt_batch(a_.get(), count, shape.k * shape.m);
    set_lt_batch(b_.get(), count, shape.k * shape.n);
    set_lt_batch(d_.get(), count, shape.m * shape.n);
  }

  template <typename T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check(cublasLtMatmulDescSetAttribute(operation_.get(), attribute, &value, sizeof value));
  }

  /// The product is multiplied by the first of two numbers in device memory. The second is 0.
  void multiply_by(const float* factor_and_zero) {
    set(CUBLASLT_MATMUL_DESC_POINTER_MODE, CUBLASLT_POINTER_MODE_DEVICE);
    factor_and_zero_ = factor_and_zero;
  }

  /// The library's candidates, its favourite first. Throws NotSupported when there are none.
  std::vector<cublasLtMatmulHeuristicResult_t> candidates(
      int wanted, std::uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_MASK) const {
    const UniqueLtPreference preference = make_lt_preference(reduction);
    std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<std::size_t>(wanted));
    int count = 0;
    check(cublasLtMatmulAlgoGetHeuristic(library_.get(), operation_.get(), a_.get(), b_.get(), d_.get(), d_.get(),
                                         preference.get(), wanted, found.data(), &count));
    found.resize(static_cast<std::size_t>(count));
    std::erase_if(found, [](const auto& candidate) { return candidate.state != CUBLAS_STATUS_SUCCESS; });
    if (found.empty()) throw NotSupported("cuBLASLt has no algorithm for this type and shape on this device");
    return found;
  }

  /// The library's candidates with the sum over k split into 2 to 16 parts, whether or not it would split it. Throws
  /// NotSupported where none can.
  std::vector<cublasLtMatmulHeuristicResult_t> split_candidates(int wanted) const {
    std::vector<cublasLtMatmulHeuristicResult_t> found;
    for (cublasLtMatmulHeuristicResult_t candidate : candidates(wanted)) {
      for (const std::int32_t parts : {2, 4, 8, 16}) {
        if (split_lt_sum(candidate.algo, parts) && check_algorithm(candidate.algo) == CUBLAS_STATUS_SUCCESS) {
          found.push_back(candidate);
        }
      }
    }
    if (found.empty()) throw NotSupported("cuBLASLt has no algorithm here that splits the sum over k");
    return found;
  }

  /// An algorithm of other types for these, by the same tiles, stages and clusters. Throws NotSupported where these
  /// have none.
  cublasLtMatmulAlgo_t counterpart(const cublasLtMatmulAlgo_t& other) const {
    std::int32_t id = 0;
    std::size_t written = 0;
    check(cublasLtMatmulAlgoConfigGetAttribute(&other, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof id, &written));
    cublasLtMatmulAlgo_t found{};
    const bool same = cublasLtMatmulAlgoInit(library_.get(), compute_, scale_type_, input_, input_, output_, output_,
                                             id, &found) == CUBLAS_STATUS_SUCCESS &&
                      copy_lt_attribute<std::uint32_t>(other, found, CUBLASLT_ALGO_CONFIG_TILE_ID) &&
                      copy_lt_attribute<std::uint32_t>(other, found, CUBLASLT_ALGO_CONFIG_STAGES_ID) &&
                      copy_lt_attribute<std::uint16_t>(other, found, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID) &&
                      copy_lt_attribute<std::uint16_t>(other, found, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID) &&
                      copy_lt_attribute<std::int32_t>(other, found, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) &&
                      copy_lt_attribute<std::uint32_t>(other, found, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME) &&
                      copy_lt_attribute<std::uint32_t>(other, found, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING) &&
                      copy_lt_attribute<std::uint32_t>(other, found, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION) &&
                      check_algorithm(found) == CUBLAS_STATUS_SUCCESS;
    if (!same) throw NotSupported("cuBLASLt has no such algorithm for these types");
    return found;
  }

  /// Whether the algorithm fits the operation and the workspace.
  cublasStatus_t check_algorithm(const cublasLtMatmulAlgo_t& algorithm) const {
    cublasLtMatmulHeuristicResult_t result{};
    const cublasStatus_t status = cublasLtMatmulAlgoCheck(library_.get(), operation_.get(), a_.get(), b_.get(),
                                                          d_.get(), d_.get(), &algorithm, &result);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    return result.workspaceSize > kMatmulWorkspaceBytes ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
  }

  cublasStatus_t enqueue(const void* a, const void* b, void* d, const cublasLtMatmulAlgo_t& algorithm, void* workspace,
                         cudaStream_t stream) const {
    const void* const alpha = factor_and_zero_ != nullptr ? factor_and_zero_ : scalar(1);
    const void* const beta = factor_and_zero_ != nullptr ? factor_and_zero_ + 1 : scalar(0);
    return cublasLtMatmul(library_.get(), operation_.get(), alpha, a, a_.get(), b, b_.get(), beta, d, d_.get(), d,
                          d_.get(), &algorithm, workspace, kMatmulWorkspaceBytes, stream);
  }

 private:
  /// 0 or 1 in the type in which the library scales products.
  const void* scalar(int value) const {
    static constexpr std::array<std::uint16_t, 2> kHalves{0, 0x3C00};  // the bits of FP16
    static constexpr std::array<float, 2> kFloats{0, 1};
    static constexpr std::array<double, 2> kDoubles{0, 1};
    static constexpr std::array<std::int32_t, 2> kIntegers{0, 1};
    const auto index = static_cast<std::size_t>(value);
    if (scale_type_ == CUDA_R_16F) return &kHalves[index];
    if (scale_type_ == CUDA_R_64F) return &kDoubles[index];
    if (scale_type_ == CUDA_R_32I) return &kIntegers[index];
    return &kFloats[index];
  }

  UniqueLtLibrary library_;
  UniqueLtOperation operation_;
  UniqueLtLayout a_;
  UniqueLtLayout b_;
  UniqueLtLayout d_;
  cudaDataType input_;
  cudaDataType output_;
  cublasComputeType_t compute_;
  cudaDataType scale_type_;
  const float* factor_and_zero_ = nullptr;
};

/// "<name> <value>", or "?" where the library does not tell: a description never fails a search.
template <typename T>
std::string describe_lt_attribute(const char* name, const cublasLtMatmulAlgo_t& algorithm,
                                  cublasLtMatmulAlgoConfigAttributes_t attribute) {
  T value{};
  std::size_t written = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof value, &written);
  return std::string(name) + " " + (status == CUBLAS_STATUS_SUCCESS ? std::to_string(value) : "?");
}

/// The library's own numbers: cublasLtMatmulTile_t, cublasLtMatmulStages_t and cublasLtClusterShape_t name them.
inline std::string describe_lt_algorithm(const cublasLtMatmulAlgo_t& algorithm) {
  return "cuBLASLt " + std::to_string(cublasLtGetVersion()) + ", " +
         describe_lt_attribute<std::int32_t>("algorithm", algorithm, CUBLASLT_ALGO_CONFIG_ID) + ", " +
         describe_lt_attribute<std::uint32_t>("tile", algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID) + ", " +
         describe_lt_attribute<std::uint32_t>("stages", algorithm, CUBLASLT_ALGO_CONFIG_STAGES_ID) + ", " +
         describe_lt_attribute<std::uint16_t>("cluster", algorithm, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID) + ", " +
         describe_lt_attribute<std::int32_t>("split-K", algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) + ", " +
         describe_lt_attribute<std::uint32_t>("swizzle", algorithm, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING) + ", " +
         describe_lt_attribute<std::uint32_t>("custom", algorithm, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION);
}

}  // namespace gpulift
