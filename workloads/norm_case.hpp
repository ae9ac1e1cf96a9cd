#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/cuda/buffer.hpp"
#include "core/cuda/device.hpp"
#include "core/harness/technique.hpp"
#include "kernels/layer_norm.hpp"
#include "kernels/verify.hpp"

namespace gpulift {

/// Seeded rows for one pass of a normalisation, behind the addition of a residual where there is one, and what FP64
/// makes of them.
class NormCase {
 public:
  enum class Pass { kForward, kBackward };
  NormCase(Device& device, const NormShape& shape, Pass pass, bool residual, std::uint64_t seed);

  /// That a step must read and write: forward from input and residual to sum and output, or from a sum that is there to
  /// output; backward from output_gradient, sum, and skip_gradient where there is a residual, to sum_gradient.
  double bytes() const;
  /// By our kernels.
  void run(StreamHandle stream) const;
  void poison(StreamHandle stream) const;
  /// Errors of all results against FP64, added, so that a NaN of any stays one. Those of the parameters' gradients are
  /// relative to the root of the number of rows at least.
  double error(StreamHandle stream) const;

 private:
  bool forward() const { return pass_ == Pass::kForward; }
  NormTensors tensors() const;

  using Matrix = DeviceBuffer<__nv_bfloat16>;
  using Floats = DeviceBuffer<float>;

  Device* device_;
  NormShape shape_;
  Pass pass_;
  bool residual_;
  std::size_t count_;
  std::size_t parameters_;
  Matrix left_, right_, sum_, result_, scale_;
  Floats statistics_, partials_, parameter_gradient_, parameter_reference_, reference_, sum_reference_;
  Verifier verifier_;
};

/// Compares our kernels, the arm "fused", with the others, which are Python's, in the case's `pass`.
void compare_norms(Trial& trial, const std::vector<std::string>& arms, const NormShape& shape, bool residual);

}  // namespace gpulift
