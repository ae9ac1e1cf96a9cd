#include "workloads/cusparselt/two_four_matmul.hpp"

#include <cuda_runtime_api.h>
#include <cusparseLt.h>

#include <algorithm>
#include <optional>
#include <source_location>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/cuda/error.hpp"
#include "core/cuda/handles.hpp"
#include "kernels/two_of_four.hpp"
#include "workloads/matmul_reference.hpp"
#include "workloads/matrix_set.hpp"

namespace gpulift {
namespace {

constexpr int kLeastArchitecture = 80;
constexpr std::uint32_t kAlignmentBytes = 16;

void check(cusparseStatus_t status, const std::source_location& place = std::source_location::current()) {
  if (status == CUSPARSE_STATUS_SUCCESS) return;
  const std::string text =
      describe_failure("cuSPARSELt", cusparseLtGetErrorName(status), cusparseLtGetErrorString(status), place);
  if (status == CUSPARSE_STATUS_ALLOC_FAILED) throw OutOfMemory(text);
  if (status == CUSPARSE_STATUS_NOT_SUPPORTED || status == CUSPARSE_STATUS_ARCH_MISMATCH) throw NotSupported(text);
  throw Error(text);
}

/// One of the library's objects, which it makes in place and which may not be moved.
template <typename T, auto Destroy>
class Made {
 public:
  template <typename F>
  explicit Made(F make) {
    check(make(&object_));
  }
  ~Made() { static_cast<void>(Destroy(&object_)); }
  Made(const Made&) = delete;
  Made& operator=(const Made&) = delete;
  T* get() { return &object_; }

 private:
  T object_{};
};

std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

}  // namespace

std::string why_two_four_unsupported(int architecture) {
  if (architecture >= kLeastArchitecture) return {};
  return "2:4 sparse products need compute capability 8.0 or later; this device has " +
         std::to_string(architecture / 10) + "." + std::to_string(architecture % 10);
}

std::string cusparselt_version() {
  std::string version;
  for (const libraryPropertyType part : {MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL}) {
    int number = 0;
    check(cusparseLtGetProperty(part, &number));
    version += (version.empty() ? "" : ".") + std::to_string(number);
  }
  return version;
}

/// D = A^T B in the library's column order: A is k x m, B is k x n, D is m x n.
class TwoFourMatmul::Impl {
 public:
  Impl(Device& device, TwoFourWeights weights, const MatmulShape& shape, std::uint64_t seed)
      : device_(device),
        weights_(weights),
        shape_(shape),
        sets_(sets_beyond_cache(device, 2 * ((shape.m / 2 + shape.n) * shape.k + shape.m * shape.n))),
        a_originals_{seed, shape.k, 1, false, 0, Zeros::kTwoOfFour},
        b_originals_{seed ^ kSecondMatmulOperand, shape.k},
        a_(device, ElementType::kBf16, shape.m * shape.k, sets_),
        b_(device, ElementType::kBf16, shape.n * shape.k, sets_),
        d_(device, ElementType::kBf16, shape.m * shape.n, sets_),
        library_([](auto* made) { return cusparseLtInit(made); }),
        a_layout_([&](auto* made) {
          return cusparseLtStructuredDescriptorInit(library_.get(), made, shape.k, shape.m, shape.k, kAlignmentBytes,
                                                    CUDA_R_16BF, CUSPARSE_ORDER_COL, CUSPARSELT_SPARSITY_50_PERCENT);
        }),
        b_layout_([&](auto* made) {
          return cusparseLtDenseDescriptorInit(library_.get(), made, shape.k, shape.n, shape.k, kAlignmentBytes,
                                               CUDA_R_16BF, CUSPARSE_ORDER_COL);
        }),
        d_layout_([&](auto* made) {
          return cusparseLtDenseDescriptorInit(library_.get(), made, shape.m, shape.n, shape.m, kAlignmentBytes,
                                               CUDA_R_16BF, CUSPARSE_ORDER_COL);
        }),
        operation_(make_operation()),
        algorithm_([&](auto* made) {
          return cusparseLtMatmulAlgSelectionInit(library_.get(), made, &operation_, CUSPARSELT_MATMUL_ALG_DEFAULT);
        }),
        plan_(
            [&](auto* made) { return cusparseLtMatmulPlanInit(library_.get(), made, &operation_, algorithm_.get()); }),
        compressed_(device, ElementType::kInt8, compressed_bytes().first, sets_),
        scratch_(device, size(std::max<std::int64_t>(compressed_bytes().second, 1))),
        workspace_(device, kMostWorkspaceBytes) {
    const UniqueStream stream = make_stream();
    fill_normals(b_.at(0), b_.type(), b_originals_, {0, shape.n, 1}, sets_, b_.stride(), stream.get());
    if (weights == TwoFourWeights::kGatheredEachStep) keep_mask(stream.get());
    NormalMatrix originals = a_originals_;
    if (weights == TwoFourWeights::kGatheredEachStep) originals.zeros = Zeros::kNone;  // what is kept is the same
    fill_a(originals, stream.get());
    for (std::int64_t set = 0; set < sets_; ++set) prepare(set, stream.get());
    search(stream.get());
    gpulift::check(cudaStreamSynchronize(stream.get()));
  }

  std::string description() {
    int chosen = 0;
    int parts = 0;
    check(cusparseLtMatmulAlgGetAttribute(library_.get(), algorithm_.get(), CUSPARSELT_MATMUL_ALG_CONFIG_ID, &chosen,
                                          sizeof chosen));
    check(cusparseLtMatmulAlgGetAttribute(library_.get(), algorithm_.get(), CUSPARSELT_MATMUL_SPLIT_K, &parts,
                                          sizeof parts));
    return "cuSPARSELt " + cusparselt_version() + ", algorithm " + std::to_string(chosen) + ", split-K " +
           std::to_string(parts);
  }

  void enqueue(cudaStream_t stream) {
    current_ = (current_ + 1) % sets_;
    if (weights_ != TwoFourWeights::kCompressedOnce) prepare(current_, stream);
    check(cusparseLtMatmul(library_.get(), plan_.get(), &kOne, compressed_.at(current_), b_.at(current_), &kZero,
                           d_.at(current_), d_.at(current_), workspace_.data(), &stream, 1));
  }

  void poison(cudaStream_t stream) {
    gpulift::check(cudaMemsetAsync(d_.at(0), 0xFF, d_.bytes(), stream));
    if (weights_ == TwoFourWeights::kCompressedOnce) return;
    // Behind the values is where they belong, which a gathering step leaves as it is.
    const bool all = weights_ == TwoFourWeights::kCompressedEachStep;
    gpulift::check(cudaMemset2DAsync(compressed_.at(0), size(compressed_.stride()), 0xFF,
                                     all ? size(compressed_.stride()) : values_bytes(), size(sets_), stream));
  }

  double error(cudaStream_t stream) {
    const std::int64_t sampled = std::min<std::int64_t>(64, shape_.m);
    const std::int64_t stripe = shape_.m / sampled;
    MatmulReference reference(device_, sampled, shape_.n, shape_.k);
    reference.multiply(a_originals_, {0, sampled, stripe}, b_originals_, {0, shape_.n, 1}, stream);
    reference.compare({d_.at(current_), d_.type(), shape_.m, {0, sampled, stripe}, shape_.n}, stream);
    return reference.error(stream);
  }

  std::vector<std::uint16_t> compressed_values(cudaStream_t stream) const {
    std::vector<std::uint16_t> values(size(shape_.m * shape_.k / 2));
    gpulift::check(
        cudaMemcpyAsync(values.data(), compressed_.at(current_), values_bytes(), cudaMemcpyDeviceToHost, stream));
    gpulift::check(cudaStreamSynchronize(stream));
    return values;
  }

 private:
  static constexpr float kOne = 1;
  static constexpr float kZero = 0;
  static constexpr std::size_t kMostWorkspaceBytes = std::size_t{64} << 20;

  cusparseLtMatmulDescriptor_t make_operation() {
    cusparseLtMatmulDescriptor_t operation{};
    check(cusparseLtMatmulDescriptorInit(library_.get(), &operation, CUSPARSE_OPERATION_TRANSPOSE,
                                         CUSPARSE_OPERATION_NON_TRANSPOSE, a_layout_.get(), b_layout_.get(),
                                         d_layout_.get(), d_layout_.get(), CUSPARSE_COMPUTE_32F));
    return operation;
  }

  /// Of A, and of what compressing takes beside.
  std::pair<std::int64_t, std::int64_t> compressed_bytes() {
    std::size_t compressed = 0;
    std::size_t scratch = 0;
    check(cusparseLtSpMMACompressedSize(library_.get(), plan_.get(), &compressed, &scratch));
    return {static_cast<std::int64_t>(compressed), static_cast<std::int64_t>(scratch)};
  }

  /// Of A in its compressed form, which begins with them: m rows of k / 2, as PyTorch's SparseSemiStructuredTensor
  /// reads it too.
  std::size_t values_bytes() const { return size(shape_.m * shape_.k / 2 * element_bytes(a_.type())); }

  void fill_a(const NormalMatrix& originals, cudaStream_t stream) {
    fill_normals(a_.at(0), a_.type(), originals, {0, shape_.m, 1}, sets_, a_.stride(), stream);
  }

  /// Compresses ones where A is kept, so that the library has no choice of places, and notes these places.
  void keep_mask(cudaStream_t stream) {
    NormalMatrix mask = a_originals_;
    mask.mask = true;
    fill_a(mask, stream);
    places_.emplace(device_, ElementType::kInt8, shape_.m * shape_.k / static_cast<std::int64_t>(kPlacesOf), sets_);
    for (std::int64_t set = 0; set < sets_; ++set) {
      compress(set, stream);
      find_places(static_cast<const __nv_bfloat16*>(a_.at(set)), size(shape_.m * shape_.k), places_at(set), stream);
    }
  }

  /// A's compressed form, of the weights as they are now.
  void prepare(std::int64_t set, cudaStream_t stream) {
    if (weights_ != TwoFourWeights::kGatheredEachStep) return compress(set, stream);
    gather_places(static_cast<const __nv_bfloat16*>(a_.at(set)), size(shape_.m * shape_.k), places_at(set),
                  static_cast<__nv_bfloat16*>(compressed_.at(set)), stream);
  }

  void compress(std::int64_t set, cudaStream_t stream) {
    check(
        cusparseLtSpMMACompress(library_.get(), plan_.get(), a_.at(set), compressed_.at(set), scratch_.data(), stream));
  }

  std::uint8_t* places_at(std::int64_t set) const { return static_cast<std::uint8_t*>(places_->at(set)); }

  /// Changes the plan to the fastest algorithm. The library times on the stream.
  void search(cudaStream_t stream) {
    check(cusparseLtMatmulSearch(library_.get(), plan_.get(), &kOne, compressed_.at(0), b_.at(0), &kZero, d_.at(0),
                                 d_.at(0), nullptr, &stream, 1));
    std::size_t workspace = 0;
    check(cusparseLtMatmulGetWorkspace(library_.get(), plan_.get(), &workspace));
    if (workspace > kMostWorkspaceBytes) throw NotSupported("cuSPARSELt's choice needs more than the workspace");
  }

  Device& device_;
  TwoFourWeights weights_;
  MatmulShape shape_;
  std::int64_t sets_;
  std::int64_t current_ = 0;
  NormalMatrix a_originals_;
  NormalMatrix b_originals_;
  MatrixSet a_;
  MatrixSet b_;
  MatrixSet d_;
  Made<cusparseLtHandle_t, cusparseLtDestroy> library_;
  Made<cusparseLtMatDescriptor_t, cusparseLtMatDescriptorDestroy> a_layout_;
  Made<cusparseLtMatDescriptor_t, cusparseLtMatDescriptorDestroy> b_layout_;
  Made<cusparseLtMatDescriptor_t, cusparseLtMatDescriptorDestroy> d_layout_;
  cusparseLtMatmulDescriptor_t operation_;
  Made<cusparseLtMatmulAlgSelection_t, cusparseLtMatmulAlgSelectionDestroy> algorithm_;
  Made<cusparseLtMatmulPlan_t, cusparseLtMatmulPlanDestroy> plan_;
  MatrixSet compressed_;             // bytes
  std::optional<MatrixSet> places_;  // of what a mask keeps
  DeviceBuffer<std::byte> scratch_;
  DeviceBuffer<std::byte> workspace_;
};

TwoFourMatmul::TwoFourMatmul(Device& device, TwoFourWeights weights, const MatmulShape& shape, std::uint64_t seed)
    : impl_(std::make_unique<Impl>(device, weights, shape, seed)) {}
TwoFourMatmul::~TwoFourMatmul() = default;

std::string TwoFourMatmul::description() const { return impl_->description(); }
void TwoFourMatmul::enqueue(cudaStream_t stream) { impl_->enqueue(stream); }
void TwoFourMatmul::poison(cudaStream_t stream) { impl_->poison(stream); }
double TwoFourMatmul::error(cudaStream_t stream) { return impl_->error(stream); }
std::vector<std::uint16_t> TwoFourMatmul::compressed_values(cudaStream_t stream) const {
  return impl_->compressed_values(stream);
}

}  // namespace gpulift
