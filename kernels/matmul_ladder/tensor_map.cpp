#include "kernels/matmul_ladder/tensor_map.hpp"

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <array>
#include <string>

#include "core/cuda/check.hpp"
#include "core/cuda/error.hpp"

namespace gpulift {
namespace {

/// The driver's function, so that nothing has to link with the driver's library.
PFN_cuTensorMapEncodeTiled_v12000 find_encoder() {
  constexpr unsigned kSince = 12000;  // the version of CUDA that brought it
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, kSince, cudaEnableDefault, &result));
  if (result != cudaDriverEntryPointSuccess || found == nullptr) {
    throw NotSupported("the driver has no cuTensorMapEncodeTiled");
  }
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(found);
}

}  // namespace

CUtensorMap make_tensor_map(const void* matrix, std::int64_t rows, std::int64_t columns, int box_rows) {
  static const PFN_cuTensorMapEncodeTiled_v12000 encode = find_encoder();
  constexpr std::uint32_t kBoxColumns = 64;  // 128 bytes: as wide as the swizzle allows
  const std::array<cuuint64_t, 2> sides{static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const std::array<cuuint64_t, 1> row_bytes{static_cast<cuuint64_t>(columns) * 2};
  const std::array<cuuint32_t, 2> box{kBoxColumns, static_cast<cuuint32_t>(box_rows)};
  const std::array<cuuint32_t, 2> every_element{1, 1};
  CUtensorMap map{};
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(matrix), sides.data(), row_bytes.data(),
             box.data(), every_element.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw Error(describe_failure("CUDA driver", "cuTensorMapEncodeTiled returned " + std::to_string(result), "",
                                 std::source_location::current()));
  }
  return map;
}

}  // namespace gpulift
