#include "workloads/matmul_type.hpp"

#include <cmath>
#include <stdexcept>

#include "workloads/matmul_format.hpp"

namespace gpulift {

// kTf32: tensor cores may cut the digits that they do not use instead of rounding, hence 2^-10 and not 2^-11.
// kFp8: |original| < 6.8, so that 64 times it stays below 448, the largest e4m3; what lies below 2^-12 is subnormal and
// too small to matter. In the fast mode Hopper keeps about 14 bits of each partial sum.
// kFp4: a scale for each 16 terms, so that they are of the format's size.
// kInt8: a step of 4/127 standard deviations.
const MatmulFormat& format_of(MatmulType type) {
  using enum ElementType;
  static constexpr MatmulFormat kFp32Format{"fp32", kFp32,   kFp32,  CUBLAS_COMPUTE_32F, CUDA_R_32F, 0, 1, false,
                                            0,      0x1p-24, 0x1p-24};
  static constexpr MatmulFormat kTf32Format{
      "tf32", kFp32, kFp32, CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F, 80, 1, false, 0x1p-10, 0x1p-24, 0x1p-24};
  static constexpr MatmulFormat kFp16Format{"fp16",  kFp16,   kFp16,  CUBLAS_COMPUTE_32F, CUDA_R_32F, 70, 1, false,
                                            0x1p-11, 0x1p-11, 0x1p-24};
  static constexpr MatmulFormat kFp16SumsFormat{
      "fp16_sums", kFp16, kFp16, CUBLAS_COMPUTE_16F, CUDA_R_16F, 70, 1, false, 0x1p-11, 0x1p-11, 0x1p-11};
  static constexpr MatmulFormat kBf16Format{"bf16", kBf16,  kBf16,  CUBLAS_COMPUTE_32F, CUDA_R_32F, 80, 1, false,
                                            0x1p-8, 0x1p-8, 0x1p-24};
  static constexpr MatmulFormat kFp8Format{"fp8",  kFp8E4m3, kBf16,  CUBLAS_COMPUTE_32F, CUDA_R_32F, 89, 64, false,
                                           0x1p-4, 0x1p-8,   0x1p-13};
  static constexpr MatmulFormat kFp4Format{"fp4",  kFp4E2m1, kBf16,  CUBLAS_COMPUTE_32F, CUDA_R_32F, 100, 1, false,
                                           0x1p-2, 0x1p-8,   0x1p-24};
  static constexpr MatmulFormat kInt8Format{"int8", kInt8, kInt32, CUBLAS_COMPUTE_32I, CUDA_R_32I, 75, 127.0f / 4, true,
                                            0,      0,     0};
  switch (type) {
    case MatmulType::kFp32:
      return kFp32Format;
    case MatmulType::kTf32:
      return kTf32Format;
    case MatmulType::kFp16:
      return kFp16Format;
    case MatmulType::kFp16Sums:
      return kFp16SumsFormat;
    case MatmulType::kBf16:
      return kBf16Format;
    case MatmulType::kFp8:
      return kFp8Format;
    case MatmulType::kFp4:
      return kFp4Format;
    case MatmulType::kInt8:
      return kInt8Format;
  }
  throw std::invalid_argument("no such matrix product type");
}

std::string matmul_type_name(MatmulType type) { return format_of(type).name; }

MatmulType parse_matmul_type(std::string_view name) {
  using enum MatmulType;
  for (const MatmulType type : {kFp32, kTf32, kFp16, kFp16Sums, kBf16, kFp8, kFp4, kInt8}) {
    if (name == format_of(type).name) return type;
  }
  throw std::invalid_argument("no such matrix product type: '" + std::string(name) + "'");
}

std::string compute_capability(int architecture) {
  return std::to_string(architecture / 10) + "." + std::to_string(architecture % 10);
}

std::string why_matmul_unsupported(MatmulType type, int architecture) {
  const MatmulFormat& format = format_of(type);
  if (architecture >= format.least_architecture) return {};
  return std::string(format.name) + " products need compute capability " +
         compute_capability(format.least_architecture) + " or later; this device has " +
         compute_capability(architecture);
}

// Rounding to nearest with unit roundoff u changes a number by a root mean square of u / sqrt(3) * sqrt((1 - 1/4) / (2
// ln 2)) = 0.425 u of itself: uniform within the spacing, the number itself log-uniform between two powers of two. The
// errors of a sum's terms are independent, so the sum has the relative error of one term, in which two operands were
// rounded; then the result is. Twice that is allowed. Partial sums grow with the root of their number, and a rounding
// of each adds up to 0.3 u sqrt(k); three times that is allowed.
double matmul_tolerance(MatmulType type, std::int64_t k) {
  const MatmulFormat& format = format_of(type);
  constexpr double kRounding = 0.425;
  const double rounded = kRounding * std::hypot(std::sqrt(2.0) * format.input_roundoff, format.output_roundoff);
  return 2 * rounded + std::sqrt(static_cast<double>(k)) * format.sum_roundoff;
}

}  // namespace gpulift
