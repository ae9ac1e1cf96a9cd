#pragma once
// Shapes of matrix products, and which of cuBLASLt's algorithms multiplies one: found once, and kept as text.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "core/harness/technique.hpp"

namespace gpulift {

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

}  // namespace gpulift
