#pragma once
// Matrix products by cuBLASLt. Every number format gets the same treatment: both operands stored along k (the "TN"
// form, the only one that all formats have), the same random normals, the same workspace, the library's candidates
// timed and the best one taken, and buffers that are rotated where a product would otherwise stay in the L2 cache.

#include <driver_types.h>

#include <cstdint>
#include <memory>

#include "core/cuda/device.hpp"
#include "kernels/matmul_data.hpp"
#include "workloads/fp8_scaling.hpp"
#include "workloads/matmul_plan.hpp"
#include "workloads/matmul_type.hpp"

namespace gpulift {

/// Makes the seed of B's originals from that of A's.
inline constexpr std::uint64_t kSecondMatmulOperand = 0xD1B54A32D192ED03ull;

/// Whether the k terms of a sum are dealt out to several blocks, whose partial sums are then added.
enum class SplitK { kAny, kNever, kAlways };

/// What becomes of a product's results, of bf16 alone: a bias for each row, then GELU in its tanh form.
enum class MatmulEpilogue {
  kNone,
  kBiasGelu,       // by the library, in the product's kernel
  kBiasGeluKept,   // so too, and what GELU was taken of is kept, as training needs it
  kBiasGeluApart,  // by a kernel of its own, behind the product, which stays
};

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
  /// Of fp8 alone, and of fp4, which kNvfp4 alone casts to.
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
  /// The algorithm of another type's product of this shape, by the same tiles, stages and clusters. Throws NotSupported
  /// where this type has none.
  MatmulPlan counterpart(const MatmulPlan& other) const;
  /// Time of one product in a window of about `window_s` of back-to-back products, after `rest_s` of idleness.
  double time_s(double window_s, double rest_s);

  /// One product into the next set of buffers. Never synchronises, never allocates.
  void enqueue(cudaStream_t stream);
  /// Overwrites all results, and what of the operands a product casts or copies first, with bytes that are NaN in every
  /// floating-point format of 8 bits or more.
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

}  // namespace gpulift
