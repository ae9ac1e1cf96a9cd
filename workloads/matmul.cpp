#include "workloads/matmul.hpp"

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/cuda/check_cublas.hpp"
#include "core/cuda/handles.hpp"
#include "kernels/bias_gelu.hpp"
#include "kernels/fp8_cast.hpp"
#include "kernels/matmul_data.hpp"
#include "kernels/matmul_epilogue.hpp"
#include "workloads/deadline.hpp"
#include "workloads/lt_operation.hpp"
#include "workloads/lt_search.hpp"
#include "workloads/matmul_reference.hpp"
#include "workloads/matrix_set.hpp"

namespace gpulift {
namespace {

static_assert(sizeof(MatmulPlan::algorithm) == sizeof(cublasLtMatmulAlgo_t));

/// What a number format is to cuBLASLt and to the data.
struct Format {
  const char* name;
  ElementType input;
  ElementType output;
  cublasComputeType_t compute;
  cudaDataType scale_type;
  int least_architecture;
  float data_scale;  // the operands hold the originals times this
  bool integers;
  double input_roundoff;  // largest relative change of an element when it becomes an operand
  double output_roundoff;
  double sum_roundoff;  // of the accumulator
};

// kTf32: tensor cores may cut the digits that they do not use instead of rounding, hence 2^-10 and not 2^-11.
// kFp8: |original| < 6.8, so that 64 times it stays below 448, the largest e4m3; what lies below 2^-12 is subnormal and
// too small to matter. In the fast mode Hopper keeps about 14 bits of each partial sum.
// kInt8: a step of 4/127 standard deviations.
const Format& format_of(MatmulType type) {
  using enum ElementType;
  static constexpr Format kFp32Format{"fp32", kFp32,   kFp32,  CUBLAS_COMPUTE_32F, CUDA_R_32F, 0, 1, false,
                                      0,      0x1p-24, 0x1p-24};
  static constexpr Format kTf32Format{"tf32",  kFp32,   kFp32,  CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F, 80, 1, false,
                                      0x1p-10, 0x1p-24, 0x1p-24};
  static constexpr Format kFp16Format{"fp16",  kFp16,   kFp16,  CUBLAS_COMPUTE_32F, CUDA_R_32F, 70, 1, false,
                                      0x1p-11, 0x1p-11, 0x1p-24};
  static constexpr Format kFp16SumsFormat{"fp16_sums", kFp16,   kFp16,  CUBLAS_COMPUTE_16F, CUDA_R_16F, 70, 1, false,
                                          0x1p-11,     0x1p-11, 0x1p-11};
  static constexpr Format kBf16Format{"bf16", kBf16,  kBf16,  CUBLAS_COMPUTE_32F, CUDA_R_32F, 80, 1, false,
                                      0x1p-8, 0x1p-8, 0x1p-24};
  static constexpr Format kFp8Format{"fp8",  kFp8E4m3, kBf16,  CUBLAS_COMPUTE_32F, CUDA_R_32F, 89, 64, false,
                                     0x1p-4, 0x1p-8,   0x1p-13};
  static constexpr Format kInt8Format{"int8", kInt8, kInt32, CUBLAS_COMPUTE_32I, CUDA_R_32I, 75, 127.0f / 4, true,
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
    case MatmulType::kInt8:
      return kInt8Format;
  }
  throw std::invalid_argument("no such matrix product type");
}

/// A power of two near the reciprocal of the root.
float near_reciprocal_root(std::int64_t count) {
  return static_cast<float>(std::exp2(-std::round(std::log2(static_cast<double>(count)) / 2)));
}

std::int64_t sets_for(const Device& device, const Format& format, const MatmulShape& shape) {
  return sets_beyond_cache(device, (shape.m + shape.n) * shape.k * element_bytes(format.input) +
                                       shape.m * shape.n * element_bytes(format.output));
}

/// The parts between separators; a separator at the very end adds none.
std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream{std::string(text)};
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

/// "9.0" of 90.
std::string dotted(int architecture) {
  return std::to_string(architecture / 10) + "." + std::to_string(architecture % 10);
}

/// What a row of A and one of B share scales by.
struct ScaledParts {
  ScaledPart a;
  ScaledPart b;
  cublasLtMatmulMatrixScale_t a_mode;
  cublasLtMatmulMatrixScale_t b_mode;
  bool fast_sums;  // the library has no fast sums of blocks
};

ScaledParts parts_of(Fp8Scaling scaling) {
  if (scaling == Fp8Scaling::kTensor) {
    return {ScaledPart::kTensor, ScaledPart::kTensor, CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F,
            CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F, true};
  }
  if (scaling == Fp8Scaling::kRow) {
    return {ScaledPart::kRow, ScaledPart::kRow, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F,
            CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F, true};
  }
  return {ScaledPart::kTile, ScaledPart::kVector, CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F,
          CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F, false};
}

/// BF16 originals that are cast to FP8 by scales of their own.
class CastOperand {
 public:
  CastOperand(Device& device, ScaledPart part, const NormalMatrix& source, std::int64_t rows, std::int64_t sets)
      : part_(part),
        rows_(rows),
        columns_(source.columns),
        originals_(device, ElementType::kBf16, rows * source.columns, sets),
        scales_(device, fp8_scales(part, rows, source.columns)) {
    fill_normals(originals_.at(0), ElementType::kBf16, source, {0, rows, 1}, sets, originals_.stride(), nullptr);
    check(cudaMemsetAsync(scales_.data(), 0, scales_.bytes(), nullptr));
    check(cudaStreamSynchronize(nullptr));  // our streams do not wait for it
  }

  const float* scales() const { return scales_.data(); }
  void cast(std::int64_t set, void* to, cudaStream_t stream) const {
    cast_to_fp8(part_, static_cast<const __nv_bfloat16*>(originals_.at(set)), rows_, columns_,
                static_cast<__nv_fp8_e4m3*>(to), scales_.data(), stream);
  }

 private:
  ScaledPart part_;
  std::int64_t rows_;
  std::int64_t columns_;
  MatrixSet originals_;
  DeviceBuffer<float> scales_;
};

template <typename T>
T parse_number(const std::string& text, int base) {
  T value{};
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (problem != std::errc() || end != text.data() + text.size()) {
    throw std::invalid_argument("not a number: '" + text + "'");
  }
  return value;
}

}  // namespace

std::string matmul_type_name(MatmulType type) { return format_of(type).name; }

MatmulType parse_matmul_type(std::string_view name) {
  using enum MatmulType;
  for (const MatmulType type : {kFp32, kTf32, kFp16, kFp16Sums, kBf16, kFp8, kInt8}) {
    if (name == format_of(type).name) return type;
  }
  throw std::invalid_argument("no such matrix product type: '" + std::string(name) + "'");
}

std::string why_matmul_unsupported(MatmulType type, int architecture) {
  const Format& format = format_of(type);
  if (architecture >= format.least_architecture) return {};
  return std::string(format.name) + " products need compute capability " + dotted(format.least_architecture) +
         " or later; this device has " + dotted(architecture);
}

std::string why_scaling_unsupported(Fp8Scaling scaling, int architecture) {
  constexpr int kHopper = 90;
  constexpr int kBlackwell = 100;
  switch (scaling) {
    case Fp8Scaling::kGiven:
    case Fp8Scaling::kTensor:
      return why_matmul_unsupported(MatmulType::kFp8, architecture);
    case Fp8Scaling::kRow:
    case Fp8Scaling::kBlock:
      if (architecture == kHopper) return {};
      return "cuBLASLt scales rows and blocks of 128 on compute capability 9.0 alone; this device has " +
             dotted(architecture);
    case Fp8Scaling::kMxfp8:
    case Fp8Scaling::kNvfp4:
      if (architecture >= kBlackwell) return "no cast to this format has been written yet";
      return "formats with a scale per 16 or 32 numbers need compute capability 10.0 or later; this device has " +
             dotted(architecture);
  }
  throw std::invalid_argument("no such scaling");
}

std::string to_string(const MatmulShape& shape) {
  return std::to_string(shape.m) + "x" + std::to_string(shape.n) + "x" + std::to_string(shape.k);
}

MatmulShape parse_matmul_shape(std::string_view text) {
  const std::vector<std::string> parts = split(text, 'x');
  if (parts.size() != 3 || text.ends_with('x')) {
    throw std::invalid_argument("not a shape <m>x<n>x<k>: '" + std::string(text) + "'");
  }
  const MatmulShape shape{parse_number<std::int64_t>(parts[0], 10), parse_number<std::int64_t>(parts[1], 10),
                          parse_number<std::int64_t>(parts[2], 10)};
  if (shape.m <= 0 || shape.n <= 0 || shape.k <= 0) {
    throw std::invalid_argument("a shape has positive sides: '" + std::string(text) + "'");
  }
  return shape;
}

MatmulShape padded_to(const MatmulShape& shape, std::int64_t multiple) {
  const auto rounded_up = [&](std::int64_t side) { return (side + multiple - 1) / multiple * multiple; };
  return {rounded_up(shape.m), shape.n, rounded_up(shape.k)};
}

// Rounding to nearest with unit roundoff u changes a number by a root mean square of u / sqrt(3) * sqrt((1 - 1/4) / (2
// ln 2)) = 0.425 u of itself: uniform within the spacing, the number itself log-uniform between two powers of two. The
// errors of a sum's terms are independent, so the sum has the relative error of one term, in which two operands were
// rounded; then the result is. Twice that is allowed. Partial sums grow with the root of their number, and a rounding
// of each adds up to 0.3 u sqrt(k); three times that is allowed.
double matmul_tolerance(MatmulType type, std::int64_t k) {
  const Format& format = format_of(type);
  constexpr double kRounding = 0.425;
  const double rounded = kRounding * std::hypot(std::sqrt(2.0) * format.input_roundoff, format.output_roundoff);
  return 2 * rounded + std::sqrt(static_cast<double>(k)) * format.sum_roundoff;
}

std::size_t matmul_library_version() { return cublasLtGetVersion(); }

std::string to_string(const MatmulPlan& plan) {
  std::ostringstream text;
  text << to_string(plan.shape) << ' ' << plan.library_version << ' ' << std::hex;
  text.fill('0');
  for (const std::uint64_t word : plan.algorithm) {
    text.width(16);
    text << word;
  }
  return text.str();
}

MatmulPlan parse_matmul_plan(std::string_view text) {
  constexpr std::size_t kDigits = 16;
  const std::vector<std::string> parts = split(text, ' ');
  MatmulPlan plan;
  if (parts.size() != 3 || parts[2].size() != kDigits * plan.algorithm.size()) {
    throw std::invalid_argument("not a matrix product plan: '" + std::string(text) + "'");
  }
  plan.shape = parse_matmul_shape(parts[0]);
  plan.library_version = parse_number<std::size_t>(parts[1], 10);
  for (std::size_t word = 0; word < plan.algorithm.size(); ++word) {
    plan.algorithm[word] = parse_number<std::uint64_t>(parts[2].substr(word * kDigits, kDigits), 16);
  }
  return plan;
}

MatmulPlan plan_of_case(Trial& trial, const std::string& name, const std::function<MatmulPlan()>& search) {
  const std::optional<std::string> known = trial.recall("plan/" + name);
  MatmulPlan plan = known ? parse_matmul_plan(*known) : MatmulPlan{};
  if (known && plan.library_version == matmul_library_version()) {
    plan.description = trial.recall("algorithm/" + name).value_or("");
  } else {
    plan = search();
  }
  trial.note("plan/" + name, to_string(plan));
  trial.note("algorithm/" + name, plan.description);
  return plan;
}

class Matmul::Impl {
 public:
  Impl(Device& device, MatmulType type, const MatmulShape& shape, std::uint64_t seed, const MatmulOptions& options)
      : device_(device),
        format_(format_of(type)),
        shape_(shape),
        stored_(options.stored == MatmulShape{} ? shape : options.stored),
        split_k_(options.split_k),
        epilogue_(options.epilogue),
        shrink_(epilogue_ == MatmulEpilogue::kNone ? 1.0f : near_reciprocal_root(shape.k)),
        scaling_(options.scaling),
        source_a_{seed, shape.k, shrink_ * data_scale(), format_.integers, 0, options.zeros},
        source_b_{seed ^ kSecondMatmulOperand, shape.k, data_scale(), format_.integers},
        sets_(sets_for(device, format_, stored_)),
        operation_(format_.input, format_.output, format_.compute, format_.scale_type, stored_),
        a_(device, format_.input, stored_.m * stored_.k, sets_),
        b_(device, format_.input, stored_.n * stored_.k, sets_),
        d_(device, format_.output, stored_.m * stored_.n, sets_),
        workspace_(device, kMatmulWorkspaceBytes),
        descale_(device, 1) {
    if (stored_.m < shape.m || stored_.n < shape.n || stored_.k < shape.k) {
      throw std::invalid_argument("the sides that are stored are at least those of the product");
    }
    if (scaling_ != Fp8Scaling::kGiven) {
      use_casts(type);
    } else if (type == MatmulType::kFp8) {
      use_scales();
    }
    if (epilogue_ != MatmulEpilogue::kNone) use_epilogue(type, seed);
    algorithm_ = candidates(1).front().algo;
    const UniqueStream stream = make_stream();
    fill(a_, source_a_, shape.m, stored_.k, stream.get());
    fill(b_, source_b_, shape.n, stored_.k, stream.get());
    if (options.pads_b) {
      unpadded_b_.emplace(device, format_.input, shape.n * shape.k, sets_);
      fill(*unpadded_b_, source_b_, shape.n, shape.k, stream.get());
    }
    check(cudaStreamSynchronize(stream.get()));
  }

  void use(const MatmulPlan& plan) {
    if (plan.shape != stored_ || plan.library_version != matmul_library_version()) {
      throw std::invalid_argument("the plan is for another shape or version of cuBLASLt");
    }
    const auto algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(plan.algorithm);
    check(operation_.check_algorithm(algorithm));
    algorithm_ = algorithm;
  }

  Found search(const Search& search);
  double time_s(double window_s, double rest_s);

  void enqueue(cudaStream_t stream) { check(try_enqueue(algorithm_, stream)); }

  void poison(cudaStream_t stream) {
    check(cudaMemsetAsync(d_.at(0), 0xFF, d_.bytes(), stream));
    if (kept_) check(cudaMemsetAsync(kept_->at(0), 0xFF, kept_->bytes(), stream));
  }

  double error(cudaStream_t stream);

  Buffers latest() const { return {a_.at(current_), b_.at(current_), d_.at(current_)}; }
  Buffers next() {
    current_ = (current_ + 1) % sets_;
    return latest();
  }

 private:
  /// Rows of `source` with zeros behind them, in a buffer whose further rows are zeros.
  static void fill(const MatrixSet& matrix, NormalMatrix source, std::int64_t rows, std::int64_t width,
                   cudaStream_t stream) {
    check(cudaMemsetAsync(matrix.at(0), 0, matrix.bytes(), stream));
    source.padding = width - source.columns;
    fill_normals(matrix.at(0), matrix.type(), source, {0, rows, 1}, matrix.sets(), matrix.stride(), stream);
  }

  std::vector<cublasLtMatmulHeuristicResult_t> candidates(int wanted) const {
    constexpr int kLeastToSplit = 16;  // of the library's candidates, not all of which can
    if (split_k_ == SplitK::kAlways) return operation_.split_candidates(std::max(wanted, kLeastToSplit));
    return operation_.candidates(
        wanted, split_k_ == SplitK::kNever ? CUBLASLT_REDUCTION_SCHEME_NONE : CUBLASLT_REDUCTION_SCHEME_MASK);
  }

  /// The operands hold the originals times a factor; the library divides by it.
  void use_scales() {
    const float descale = 1 / format_.data_scale;
    check(cudaMemcpy(descale_.data(), &descale, sizeof descale, cudaMemcpyHostToDevice));
    // A copy from pageable memory may return before it arrives, and our streams do not wait for the default stream.
    check(cudaStreamSynchronize(nullptr));
    const float* pointer = descale_.data();
    operation_.set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, pointer);
    operation_.set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, pointer);
    operation_.set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t{1});
  }

  /// What the originals are multiplied by where they are stored.
  float data_scale() const { return scaling_ == Fp8Scaling::kGiven ? format_.data_scale : 1.0f; }

  void use_casts(MatmulType type) {
    if (type != MatmulType::kFp8 || stored_ != shape_) {
      throw std::invalid_argument("only fp8 operands without padding are cast");
    }
    const std::string reason = why_scaling_unsupported(scaling_, device_.architecture());
    if (!reason.empty()) throw NotSupported(reason);
    const ScaledParts parts = parts_of(scaling_);
    cast_a_.emplace(device_, parts.a, source_a_, shape_.m, sets_);
    cast_b_.emplace(device_, parts.b, source_b_, shape_.n, sets_);
    operation_.set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, parts.a_mode);
    operation_.set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, parts.b_mode);
    operation_.set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, cast_a_->scales());
    operation_.set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, cast_b_->scales());
    operation_.set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<std::int8_t>(parts.fast_sums));
  }

  void use_epilogue(MatmulType type, std::uint64_t seed) {
    if (type != MatmulType::kBf16) throw std::invalid_argument("only bf16 products have an epilogue");
    bias_.emplace(device_, ElementType::kBf16, stored_.m, 1);
    fill(*bias_, {~seed, stored_.m}, 1, stored_.m, nullptr);
    check(cudaStreamSynchronize(nullptr));  // our streams do not wait for it
    if (epilogue_ != MatmulEpilogue::kBiasGelu) kept_.emplace(device_, format_.output, stored_.m * stored_.n, sets_);
    if (epilogue_ == MatmulEpilogue::kBiasGeluApart) return;
    const bool keeps = epilogue_ == MatmulEpilogue::kBiasGeluKept;
    operation_.set(CUBLASLT_MATMUL_DESC_EPILOGUE,
                   keeps ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_BIAS);
    operation_.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(bias_->at(0)));
    if (!keeps) return;
    operation_.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, stored_.m);
    operation_.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, kept_->at(0));
  }

  cublasStatus_t try_enqueue(const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream) {
    next();
    if (unpadded_b_) pad_b(stream);
    if (cast_a_) cast_a_->cast(current_, a_.at(current_), stream);
    if (cast_b_) cast_b_->cast(current_, b_.at(current_), stream);
    const bool apart = epilogue_ == MatmulEpilogue::kBiasGeluApart;
    if (kept_ && !apart) operation_.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, kept_->at(current_));
    void* const product = apart ? kept_->at(current_) : d_.at(current_);
    const cublasStatus_t status =
        operation_.enqueue(a_.at(current_), b_.at(current_), product, algorithm, workspace_.data(), stream);
    if (apart && status == CUBLAS_STATUS_SUCCESS) {
      bias_gelu({.count = static_cast<std::size_t>(stored_.m * stored_.n),
                 .columns = static_cast<int>(stored_.m),
                 .input = static_cast<const __nv_bfloat16*>(product),
                 .bias = bias(),
                 .output = static_cast<__nv_bfloat16*>(d_.at(current_))},
                stream);
    }
    return status;
  }

  const __nv_bfloat16* bias() const { return static_cast<const __nv_bfloat16*>(bias_->at(0)); }

  void pad_b(cudaStream_t stream) {
    const auto bytes = [&](std::int64_t elements) {
      return static_cast<std::size_t>(elements * element_bytes(format_.input));
    };
    check(cudaMemcpy2DAsync(b_.at(current_), bytes(stored_.k), unpadded_b_->at(current_), bytes(shape_.k),
                            bytes(shape_.k), static_cast<std::size_t>(shape_.n), cudaMemcpyDeviceToDevice, stream));
  }

  TryLtAlgorithm enqueuer() {
    return
        [this](const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream) { return try_enqueue(algorithm, stream); };
  }

  double reference_error(const Rows& rows, std::int64_t chunk, cudaStream_t stream);

  Device& device_;
  const Format& format_;
  MatmulShape shape_;
  MatmulShape stored_;
  SplitK split_k_;
  MatmulEpilogue epilogue_;
  float shrink_;  // of A, a power of two
  Fp8Scaling scaling_;
  NormalMatrix source_a_;
  NormalMatrix source_b_;
  std::int64_t sets_;
  std::int64_t current_ = 0;
  LtOperation operation_;
  MatrixSet a_;
  MatrixSet b_;
  std::optional<MatrixSet> unpadded_b_;
  std::optional<CastOperand> cast_a_;
  std::optional<CastOperand> cast_b_;
  std::optional<MatrixSet> bias_;
  std::optional<MatrixSet> kept_;  // what GELU was taken of, or the product without its bias
  MatrixSet d_;
  DeviceBuffer<std::byte> workspace_;
  DeviceBuffer<float> descale_;
  cublasLtMatmulAlgo_t algorithm_{};
};

Matmul::Found Matmul::Impl::search(const Search& search) {
  const LtFound found = search_lt(candidates(search.candidates), search, enqueuer());
  algorithm_ = found.algorithm;
  return {{stored_, matmul_library_version(), std::bit_cast<decltype(MatmulPlan::algorithm)>(found.algorithm),
           found.description},
          found.time_s};
}

double Matmul::Impl::time_s(double window_s, double rest_s) {
  return lt_time_s(algorithm_, window_s, rest_s, enqueuer());
}

double Matmul::Impl::error(cudaStream_t stream) {
  constexpr std::int64_t kWholeElements = 4096 * 4096;
  constexpr std::int64_t kSampledRows = 64;
  constexpr std::int64_t kChunkBytes = 256 << 20;
  const bool whole = shape_.m * shape_.n <= kWholeElements || shape_.m < kSampledRows;
  const Rows rows = whole ? Rows{0, shape_.m, 1} : Rows{0, kSampledRows, shape_.m / kSampledRows};
  const std::int64_t row_bytes = shape_.k * element_bytes(ElementType::kFp64);
  return reference_error(rows, std::clamp<std::int64_t>(kChunkBytes / row_bytes, 1, shape_.n), stream);
}

/// `chunk` columns of the product at a time.
double Matmul::Impl::reference_error(const Rows& rows, std::int64_t chunk, cudaStream_t stream) {
  NormalMatrix source_a = source_a_;
  NormalMatrix source_b = source_b_;
  if (!format_.integers) {
    source_a.scale = shrink_;
    source_b.scale = 1;
  }
  MatmulReference reference(device_, rows.count, chunk, shape_.k);
  for (std::int64_t first = 0; first < shape_.n; first += chunk) {
    const std::int64_t columns = std::min(chunk, shape_.n - first);
    double* const expected = reference.multiply(source_a, rows, source_b, {first, columns, 1}, stream);
    const auto compare = [&](const MatrixSet& results) {
      const auto* data =
          static_cast<const std::byte*>(results.at(current_)) + first * stored_.m * element_bytes(format_.output);
      reference.compare({data, format_.output, stored_.m, rows, columns}, stream);
    };
    if (bias_) {
      if (epilogue_ == MatmulEpilogue::kBiasGeluApart) compare(*kept_);
      add_bias(expected, rows, columns, bias(), stream);
      if (epilogue_ == MatmulEpilogue::kBiasGeluKept) compare(*kept_);
      apply_gelu(expected, rows.count * columns, stream);
    }
    compare(d_);
  }
  return reference.error(stream);
}

Matmul::Matmul(Device& device, MatmulType type, const MatmulShape& shape, std::uint64_t seed,
               const MatmulOptions& options)
    : impl_(std::make_unique<Impl>(device, type, shape, seed, options)) {}
Matmul::~Matmul() = default;
Matmul::Matmul(Matmul&&) noexcept = default;
Matmul& Matmul::operator=(Matmul&&) noexcept = default;

void Matmul::use(const MatmulPlan& plan) { impl_->use(plan); }
Matmul::Found Matmul::search(const Search& search) { return impl_->search(search); }
double Matmul::time_s(double window_s, double rest_s) { return impl_->time_s(window_s, rest_s); }
void Matmul::enqueue(cudaStream_t stream) { impl_->enqueue(stream); }
void Matmul::poison(cudaStream_t stream) { impl_->poison(stream); }
double Matmul::error(cudaStream_t stream) { return impl_->error(stream); }
Matmul::Buffers Matmul::latest() const { return impl_->latest(); }
Matmul::Buffers Matmul::next() { return impl_->next(); }

namespace {

/// The `wanted` shapes of the highest rate with the library's first choices of algorithm.
std::vector<MatmulShape> fastest_shapes(Device& device, MatmulType type, std::span<const MatmulShape> shapes,
                                        std::uint64_t seed, double budget_s, std::size_t wanted) {
  struct Candidate {
    MatmulShape shape;
    double flop_rate;
  };
  const Deadline deadline(budget_s);
  std::vector<Candidate> tried;
  for (const MatmulShape& shape : shapes) {
    if (!tried.empty() && deadline.passed()) break;
    try {
      Matmul matmul(device, type, shape, seed);
      const double time_s = matmul.search({budget_s / static_cast<double>(shapes.size()), 0, 4}).time_s;
      tried.push_back({shape, shape.flops() / time_s});
    } catch (const OutOfMemory&) {
      continue;  // a smaller shape may fit
    }
  }
  if (tried.empty()) throw OutOfMemory("no shape of the search fits into the device's memory");
  std::ranges::sort(tried, std::ranges::greater{}, &Candidate::flop_rate);
  tried.resize(std::min(tried.size(), wanted));
  std::vector<MatmulShape> fastest;
  for (const Candidate& candidate : tried) fastest.push_back(candidate.shape);
  return fastest;
}

/// One shape with its best algorithm, and what it reached so far.
struct Finalist {
  Matmul matmul;
  MatmulPlan plan;
  std::vector<double> flop_rates;
};

/// The finalists in turn, in windows like those that count: a short window after no rest favours other shapes.
MatmulPlan play_off(std::vector<Finalist> finalists, bool rested) {
  constexpr int kRounds = 3;
  constexpr double kWindow_s = 3e-3;
  constexpr double kRest_s = 0.03;
  for (int round = 0; round < kRounds; ++round) {
    for (Finalist& finalist : finalists) {
      const double time_s = finalist.matmul.time_s(kWindow_s, rested ? kRest_s : 0);
      finalist.flop_rates.push_back(finalist.plan.shape.flops() / time_s);
    }
  }
  const auto middle = [](Finalist& finalist) {
    std::ranges::sort(finalist.flop_rates);
    return finalist.flop_rates[kRounds / 2];
  };
  return std::ranges::max_element(finalists, {}, middle)->plan;
}

}  // namespace

MatmulPlan find_best_matmul(Device& device, MatmulType type, std::span<const MatmulShape> shapes, std::uint64_t seed,
                            const Matmul::Search& search) {
  constexpr std::size_t kFinalists = 4;
  const Deadline deadline(search.budget_s);
  std::vector<MatmulShape> finalists(shapes.begin(), shapes.end());
  if (shapes.size() > kFinalists)
    finalists = fastest_shapes(device, type, shapes, seed, search.budget_s / 2, kFinalists);
  if (finalists.empty()) throw std::invalid_argument("a search needs at least one shape");

  std::vector<Finalist> played;
  for (std::size_t i = 0; i < finalists.size(); ++i) {
    const double share_s = deadline.left_s() / static_cast<double>(finalists.size() - i);
    Matmul matmul(device, type, finalists[i], seed);
    MatmulPlan plan = matmul.search({share_s, search.rest_s, search.candidates}).plan;
    played.push_back({std::move(matmul), std::move(plan), {}});
  }
  return play_off(std::move(played), search.rest_s > 0);
}

}  // namespace gpulift
