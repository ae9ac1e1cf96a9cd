#pragma once
// The number formats in which matrices are multiplied, and how exact their products are.

#include <cstdint>
#include <string>
#include <string_view>

namespace gpulift {

/// Format of the operands, and how they are multiplied:
///   kFp32  CUBLAS_COMPUTE_32F, which keeps TF32 off               product fp32
///   kTf32  the same data, CUBLAS_COMPUTE_32F_FAST_TF32            product fp32
///   kFp16, kBf16  accumulated in fp32                             product fp16, bf16
///   kFp16Sums     accumulated in fp16                             product fp16
///   kFp8   e4m3 with one scale per operand, accumulated in fp32   product bf16
///          in the fast mode that training uses for forward products (CUBLASLT_MATMUL_DESC_FAST_ACCUM)
///   kFp4   e2m1, cast with a scale per 16 terms (NVFP4)           product bf16
///   kInt8  accumulated in int32                                   product int32
enum class MatmulType { kFp32, kTf32, kFp16, kFp16Sums, kBf16, kFp8, kFp4, kInt8 };

/// The operands of a product.
enum class MatmulSide { kA, kB };

/// "fp32", "tf32", "fp16", "fp16_sums", "bf16", "fp8", "fp4", "int8".
std::string matmul_type_name(MatmulType type);
/// Throws std::invalid_argument for another name.
MatmulType parse_matmul_type(std::string_view name);

/// "9.0" of 90.
std::string compute_capability(int architecture);

/// Why a device of this architecture (90 for 9.0) cannot multiply the type; empty if it can.
std::string why_matmul_unsupported(MatmulType type, int architecture);

/// The largest relative Frobenius error ||D - R|| / ||R|| that a product of random normals may have, R being the FP64
/// product of the originals before they were rounded to the type (kInt8: of the integers themselves, so 0).
double matmul_tolerance(MatmulType type, std::int64_t k);

}  // namespace gpulift
