#include "workloads/matmul.hpp"

#include <cublasLt.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <vector>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/cuda/check_cublas.hpp"
#include "workloads/bias_gelu_epilogue.hpp"
#include "workloads/lt_operation.hpp"
#include "workloads/lt_search.hpp"
#include "workloads/matmul_format.hpp"
#include "workloads/matmul_operand.hpp"
#include "workloads/matmul_reference.hpp"
#include "workloads/matrix_set.hpp"

namespace gpulift {
namespace {

/// A power of two near the reciprocal of the root.
float near_reciprocal_root(std::int64_t count) {
  return static_cast<float>(std::exp2(-std::round(std::log2(static_cast<double>(count)) / 2)));
}

std::int64_t sets_for(const Device& device, const MatmulFormat& format, const MatmulOptions& options) {
  const MatmulShape& shape = options.stored;
  const ElementType input = options.scaling == Fp8Scaling::kGiven ? format.input : ElementType::kBf16;
  return sets_beyond_cache(
      device, (shape.m + shape.n) * shape.k * element_bytes(input) + shape.m * shape.n * element_bytes(format.output));
}

/// Integers are what they stand for; other formats are scaled where they are stored.
float scale_of_originals(const MatmulFormat& format) { return format.integers ? format.data_scale : 1.0f; }

float scale_of_a(const MatmulFormat& format, const MatmulOptions& options, const MatmulShape& shape) {
  return scale_of_originals(format) *
         (options.epilogue == MatmulEpilogue::kNone ? 1.0f : near_reciprocal_root(shape.k));
}

/// The same options with the sides that are stored. Throws where they do not go with the type or each other.
MatmulOptions completed(MatmulOptions options, MatmulType type, const MatmulShape& shape) {
  if (options.stored == MatmulShape{}) options.stored = shape;
  const MatmulShape& stored = options.stored;
  if (stored.m < shape.m || stored.n < shape.n || stored.k < shape.k) {
    throw std::invalid_argument("the sides that are stored are at least those of the product");
  }
  const bool is_cast = options.scaling != Fp8Scaling::kGiven;
  const bool is_nvfp4 = options.scaling == Fp8Scaling::kNvfp4;
  if (is_cast && (stored != shape || (type != MatmulType::kFp8 && !is_nvfp4))) {
    throw std::invalid_argument("only fp8 operands without padding are cast");
  }
  if ((type == MatmulType::kFp4) != is_nvfp4) throw std::invalid_argument("fp4 operands are cast as NVFP4 alone");
  if (options.epilogue != MatmulEpilogue::kNone && type != MatmulType::kBf16) {
    throw std::invalid_argument("only bf16 products have an epilogue");
  }
  return options;
}

}  // namespace

class Matmul::Impl {
 public:
  Impl(Device& device, MatmulType type, const MatmulShape& shape, std::uint64_t seed, const MatmulOptions& options)
      : device_(device),
        format_(format_of(type)),
        shape_(shape),
        options_(completed(options, type, shape)),
        source_a_{seed, shape.k, scale_of_a(format_, options, shape), format_.integers, 0, options.zeros},
        source_b_{seed ^ kSecondMatmulOperand, shape.k, scale_of_originals(format_), format_.integers},
        sets_(sets_for(device, format_, options_)),
        operation_(format_.input, format_.output, format_.compute, format_.scale_type, stored()),
        a_(make_operand(MatmulSide::kA)),
        b_(make_operand(MatmulSide::kB)),
        d_(device, format_.output, stored().m * stored().n, sets_),
        workspace_(device, kMatmulWorkspaceBytes) {
    if (a_->scales() != nullptr) use_scales(operation_, options_.scaling, *a_, *b_);
    if (a_->tensor_scale() != nullptr) product_scale_.emplace(device, operation_, *a_, *b_);
    if (options_.epilogue != MatmulEpilogue::kNone) {
      epilogue_.emplace(device, options_.epilogue, stored(), seed, sets_, operation_);
    }
    algorithm_ = candidates(1).front().algo;
  }

  void use(const MatmulPlan& plan) {
    if (plan.shape != stored() || plan.library_version != matmul_library_version()) {
      throw std::invalid_argument("the plan is for another shape or version of cuBLASLt");
    }
    const auto algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(plan.algorithm);
    check(operation_.check_algorithm(algorithm));
    algorithm_ = algorithm;
  }

  Found search(const Search& search);
  MatmulPlan counterpart(const MatmulPlan& other) const {
    const auto algorithm = operation_.counterpart(std::bit_cast<cublasLtMatmulAlgo_t>(other.algorithm));
    return plan_of(algorithm, describe_lt_algorithm(algorithm));
  }
  double time_s(double window_s, double rest_s);

  void enqueue(cudaStream_t stream) { check(try_enqueue(algorithm_, stream)); }

  void poison(cudaStream_t stream) {
    a_->poison(stream);
    b_->poison(stream);
    if (product_scale_) product_scale_->poison(stream);
    check(cudaMemsetAsync(d_.at(0), 0xFF, d_.bytes(), stream));
    if (epilogue_) epilogue_->poison(stream);
  }

  double error(cudaStream_t stream);

  Buffers latest() const { return {a_->at(current_), b_->at(current_), d_.at(current_)}; }
  Buffers next() {
    current_ = (current_ + 1) % sets_;
    return latest();
  }

 private:
  const MatmulShape& stored() const { return options_.stored; }

  std::unique_ptr<MatmulOperand> make_operand(MatmulSide side) const {
    const bool is_a = side == MatmulSide::kA;
    const NormalMatrix& source = is_a ? source_a_ : source_b_;
    const float factor = format_.integers ? 1 : format_.data_scale;
    const StoredRows rows{is_a ? shape_.m : shape_.n, is_a ? stored().m : stored().n, stored().k};
    if (options_.scaling != Fp8Scaling::kGiven) {
      return make_cast_operand(device_, options_.scaling, side, source, rows.rows, sets_);
    }
    if (options_.pads_b && !is_a) return make_copied_operand(device_, format_.input, source, rows, factor, sets_);
    return make_given_operand(device_, format_.input, source, rows, factor, sets_);
  }

  std::vector<cublasLtMatmulHeuristicResult_t> candidates(int wanted) const {
    constexpr int kLeastToSplit = 16;  // of the library's candidates, not all of which can
    if (options_.split_k == SplitK::kAlways) return operation_.split_candidates(std::max(wanted, kLeastToSplit));
    return operation_.candidates(
        wanted, options_.split_k == SplitK::kNever ? CUBLASLT_REDUCTION_SCHEME_NONE : CUBLASLT_REDUCTION_SCHEME_MASK);
  }

  MatmulPlan plan_of(const cublasLtMatmulAlgo_t& algorithm, const std::string& description) const {
    return {stored(), matmul_library_version(), std::bit_cast<decltype(MatmulPlan::algorithm)>(algorithm), description};
  }

  cublasStatus_t try_enqueue(const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream) {
    const Buffers buffers = next();
    a_->prepare(current_, stream);
    b_->prepare(current_, stream);
    if (product_scale_) product_scale_->prepare(stream);
    void* const product = epilogue_ ? epilogue_->product_of(current_, buffers.d, operation_) : buffers.d;
    const cublasStatus_t status =
        operation_.enqueue(buffers.a, buffers.b, product, algorithm, workspace_.data(), stream);
    if (epilogue_ && status == CUBLAS_STATUS_SUCCESS) epilogue_->finish(current_, buffers.d, stream);
    return status;
  }

  TryLtAlgorithm enqueuer() {
    return
        [this](const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream) { return try_enqueue(algorithm, stream); };
  }

  double reference_error(const Rows& rows, std::int64_t chunk, cudaStream_t stream);

  Device& device_;
  const MatmulFormat& format_;
  MatmulShape shape_;
  MatmulOptions options_;
  NormalMatrix source_a_;
  NormalMatrix source_b_;
  std::int64_t sets_;
  std::int64_t current_ = 0;
  LtOperation operation_;
  std::unique_ptr<MatmulOperand> a_;
  std::unique_ptr<MatmulOperand> b_;
  std::optional<ProductScale> product_scale_;
  MatrixSet d_;
  std::optional<BiasGeluEpilogue> epilogue_;
  DeviceBuffer<std::byte> workspace_;
  cublasLtMatmulAlgo_t algorithm_{};
};

Matmul::Found Matmul::Impl::search(const Search& search) {
  const LtFound found = search_lt(candidates(search.candidates), search, enqueuer());
  algorithm_ = found.algorithm;
  return {plan_of(found.algorithm, found.description), found.time_s};
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
  MatmulReference reference(device_, rows.count, chunk, shape_.k);
  for (std::int64_t first = 0; first < shape_.n; first += chunk) {
    const std::int64_t columns = std::min(chunk, shape_.n - first);
    double* const expected = reference.multiply(source_a_, rows, source_b_, {first, columns, 1}, stream);
    const auto compare = [&](const MatrixSet& results) {
      const auto* data =
          static_cast<const std::byte*>(results.at(current_)) + first * stored().m * element_bytes(format_.output);
      reference.compare({data, format_.output, stored().m, rows, columns}, stream);
    };
    if (epilogue_) epilogue_->apply_to(expected, rows, columns, compare, stream);
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
MatmulPlan Matmul::counterpart(const MatmulPlan& other) const { return impl_->counterpart(other); }
double Matmul::time_s(double window_s, double rest_s) { return impl_->time_s(window_s, rest_s); }
void Matmul::enqueue(cudaStream_t stream) { impl_->enqueue(stream); }
void Matmul::poison(cudaStream_t stream) { impl_->poison(stream); }
double Matmul::error(cudaStream_t stream) { return impl_->error(stream); }
Matmul::Buffers Matmul::latest() const { return impl_->latest(); }
Matmul::Buffers Matmul::next() { return impl_->next(); }

}  // namespace gpulift
