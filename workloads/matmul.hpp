#pragma once
// Matrix products by cuBLASLt. Every number format gets the same treatment: both operands stored along k (the "TN"
// form, the only one that all formats have), the same random normals, the same workspace, the library's candidates
// timed and the best one taken, and buffers that are rotated where a product would otherwise stay in the L2 cache.

#include <driver_types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/cuda/device.hpp"
#include "core/harness/technique.hpp"
#include "kernels/matmul_data.hpp"

namespace gpulift {

/// Format of the operands, and how they are multiplied:
///   kFp32  CUBLAS_COMPUTE_32F, which keeps TF32 off               product fp32
///   kTf32  the same data, CUBLAS_COMPUTE_32F_FAST_TF32            product fp32
///   kFp16, kBf16  accumulated in fp32                             product fp16, bf16
///   kFp16Sums     accumulated in fp16                             product fp16
///   kFp8   e4m3 with one scale per operand, accumulated in fp32   product bf16
///          in the fast mode that training uses for forward products (CUBLASLT_MATMUL_DESC_FAST_ACCUM)
///   kInt8  accumulated in int32                                   product int32
enum class MatmulType { kFp32, kTf32, kFp16, kFp16Sums, kBf16, kFp8, kInt8 };

/// "fp32", "tf32", "fp16", "fp16_sums", "bf16", "fp8", "int8".
std::string matmul_type_name(MatmulType type);
/// Throws std::invalid_argument for another name.
MatmulType parse_matmul_type(std::string_view name);

/// Makes the seed of B's originals from that of A's.
inline constexpr std::uint64_t kSecondMatmulOperand = 0xD1B54A32D192ED03ull;

/// Why a device of this architecture (90 for 9.0) cannot multiply the type; empty if it can.
std::string why_matmul_unsupported(MatmulType type, int architecture);

/// An m x k matrix times a k x n matrix.
struct MatmulShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  /// A multiplication and an addition for each of m n k terms.
  double flops() const { return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
  bool operator==(const MatmulShape&) const = default;
};

/// "<m>x<n>x<k>".
std::string to_string(const MatmulShape& shape);
/// Throws std::invalid_argument unless the text is three positive numbers.
MatmulShape parse_matmul_shape(std::string_view text);
/// Rows of A and terms k of each sum rounded up to a multiple.
MatmulShape padded_to(const MatmulShape& shape, std::int64_t multiple);

/// The largest relative Frobenius error ||D - R|| / ||R|| that a product of random normals may have, R being the FP64
/// product of the originals before they were rounded to the type (kInt8: of the integers themselves, so 0).
double matmul_tolerance(MatmulType type, std::int64_t k);

/// How to multiply: what a search found. Valid for the same version of cuBLASLt and the same model of GPU.
struct MatmulPlan {
  MatmulShape shape;
  std::size_t library_version = 0;
  std::array<std::uint64_t, 8> algorithm = {};  // the bytes of a cublasLtMatmulAlgo_t
  std::string description;                      // for people; not part of the text form
};

/// The loaded library, e.g. 130100.
std::size_t matmul_library_version();

/// "<m>x<n>x<k> <library version> <algorithm in hexadecimal>".
std::string to_string(const MatmulPlan& plan);
/// Throws std::invalid_argument for anything that to_string() does not write.
MatmulPlan parse_matmul_plan(std::string_view text);

/// What an earlier launch of the case noted as "plan/<name>" for this version of the library, or else what `search`
/// finds. Noted for later launches, the description as "algorithm/<name>".
MatmulPlan plan_of_case(Trial& trial, const std::string& name, const std::function<MatmulPlan()>& search);

/// Times the library's candidates for at most about `budget_s` (at least one of them). The last rounds, among the
/// fastest few, leave the device idle for `rest_s` before each window.
struct MatmulSearch {
  double budget_s = 0.5;
  double rest_s = 0;
  int candidates = 64;
};

/// Whether the k terms of a sum are dealt out to several blocks, whose partial sums are then added.
enum class SplitK { kAny, kNever, kAlways };

/// What becomes of a product's results, of bf16 alone: a bias for each row, then GELU in its tanh form.
enum class MatmulEpilogue {
  kNone,
  kBiasGelu,       // by the library, in the product's kernel
  kBiasGeluKept,   // so too, and what GELU was taken of is kept, as training needs it
  kBiasGeluApart,  // by a kernel of its own, behind the product, which stays
};

/// Where the scales of fp8 operands come from.
enum class Fp8Scaling {
  kGiven,  // known beforehand, one per operand, which is stored as fp8
  // Taken of bf16 operands and those cast, in each product:
  kTensor,  // one per operand
  kRow,     // one per row of A and of B
  kBlock,   // one per 128 x 128 of A, the weights, and per 128 terms of a row of B, the activations
  kMxfp8,   // one of 8 bits per 32 terms
  kNvfp4,   // of 4-bit operands, one of 8 bits per 16 terms
};

/// Why a device of this architecture cannot multiply so; empty if it can.
std::string why_scaling_unsupported(Fp8Scaling scaling, int architecture);

/// What there is beside a plain product.
struct MatmulOptions {
  /// The sides that are multiplied where they exceed the shape's, with zeros behind the operands. 0 x 0 x 0: as the
  /// shape is.
  MatmulShape stored = {};
  /// B lies unpadded, and each product begins with a copy of its rows into padded ones.
  bool pads_b = false;
  SplitK split_k = SplitK::kAny;
  /// With one, A holds the originals divided by about the root of k, so that results are about normal as well.
  MatmulEpilogue epilogue = MatmulEpilogue::kNone;
  /// Among the originals of A.
  Zeros zeros = Zeros::kNone;
  /// Of fp8 alone.
  Fp8Scaling scaling = Fp8Scaling::kGiven;
};

/// A product with its operands, result and workspace on the device.
class Matmul {
 public:
  /// Fills the operands and selects the library's first choice of algorithm. Throws NotSupported when it has none.
  Matmul(Device& device, MatmulType type, const MatmulShape& shape, std::uint64_t seed,
         const MatmulOptions& options = {});
  ~Matmul();
  Matmul(Matmul&&) noexcept;
  Matmul& operator=(Matmul&&) noexcept;

  /// Throws when the library refuses the plan for this type and shape.
  void use(const MatmulPlan& plan);

  /// Uses the fastest algorithm. A plan is of the stored shape.
  using Search = MatmulSearch;
  struct Found {
    MatmulPlan plan;
    double time_s = 0;
  };
  Found search(const Search& search);
  /// Time of one product in a window of about `window_s` of back-to-back products, after `rest_s` of idleness.
  double time_s(double window_s, double rest_s);

  /// One product into the next set of buffers. Never synchronises, never allocates.
  void enqueue(cudaStream_t stream);
  /// Overwrites all results with bytes that are NaN in every floating-point format.
  void poison(cudaStream_t stream);
  /// Relative Frobenius error of the latest result and what is kept beside it, see matmul_tolerance(): of all of it up
  /// to 4096 x 4096 elements, else of 64 rows, one from each 64th of the matrix. Takes device memory for the reference;
  /// synchronises.
  double error(cudaStream_t stream);

  /// The buffers of the latest product, in device memory: A as m rows of k, B as n rows of k, D as n rows of m.
  struct Buffers {
    const void* a;
    const void* b;
    void* d;
  };
  Buffers latest() const;
  /// Moves on to the next set, for a product by other means than enqueue().
  Buffers next();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// The plan of the highest arithmetic rate over the shapes: all are tried with the library's first choices, then the
/// best four with all candidates, and those are timed in turn, rested as the search says, in longer windows. Shapes for
/// which memory is short are passed over; throws OutOfMemory if that is all.
MatmulPlan find_best_matmul(Device& device, MatmulType type, std::span<const MatmulShape> shapes, std::uint64_t seed,
                            const Matmul::Search& search);

}  // namespace gpulift
