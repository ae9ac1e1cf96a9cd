#pragma once

#include <cstdint>

#include "core/cuda/buffer.hpp"
#include "core/cuda/device.hpp"
#include "core/harness/technique.hpp"
#include "kernels/layer_norm.hpp"
#include "kernels/verify.hpp"

namespace gpulift {

/// Seeded rows for one pass of a normalisation, and what FP64 makes of them.
class NormCase {
 public:
  enum class Pass { kForward, kForwardOfSum, kBackward };
  NormCase(Device& device, const NormShape& shape, Pass pass, std::uint64_t seed);

  Device& device() const { return *device_; }
  const NormShape& shape() const { return shape_; }
  bool forward() const { return pass_ != Pass::kBackward; }
  std::size_t count() const { return count_; }
  /// Forward: input and residual to sum and output, or from a sum that is there to output. Backward: output_gradient,
  /// skip_gradient and sum to sum_gradient.
  NormTensors tensors() const;
  /// The normalised rows, as a forward pass operation by operation leaves them. Returns when they are there.
  void normalise(__nv_bfloat16* normalised) const;

  void poison(StreamHandle stream) const;
  /// Errors of all results against FP64, added, so that a NaN of any stays one. Those of the parameters' gradients are
  /// relative to the root of the number of rows at least.
  double error(StreamHandle stream) const;

 private:
  bool adds() const { return pass_ == Pass::kForward; }

  using Matrix = DeviceBuffer<__nv_bfloat16>;
  using Floats = DeviceBuffer<float>;

  Device* device_;
  NormShape shape_;
  Pass pass_;
  std::size_t count_;
  std::size_t parameters_;
  Matrix left_, right_, sum_, result_, scale_;
  Floats statistics_, partials_, parameter_gradient_, parameter_reference_, reference_, sum_reference_;
  Verifier verifier_;
};

}  // namespace gpulift
