#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

namespace gpulift {

enum class Precision {
  kFp32,      // TF32 off
  kTf32,      // FP32 storage, TF32 products and convolutions
  kFp16,      // autocast to FP16 with loss scaling; what is not cast stays FP32 with TF32 off
  kBf16,      // autocast to BF16
  kPureBf16,  // weights, gradients and activations in BF16; FP32 master weights in the optimizer
};

/// "fp32", "tf32", "fp16", "bf16" or "pure_bf16"; throws std::invalid_argument for another name.
Precision precision_named(const std::string& name);
/// The ceiling that bounds products of this precision there: "gemm/fp32", "gemm/tf32", "gemm/fp16" or "gemm/bf16" on a
/// GPU; on a host, which has no TF32, "host_gemm/fp32" and so on.
std::string roof_of(Precision precision, torch::Device device);
/// Whether the host's processor multiplies in the number format of this precision. Where it does not, torch computes
/// product by product, hundreds of times slower than in FP32.
bool host_multiplies_in(Precision precision);
/// Why a GPU of this architecture (90 for 9.0) has no products of this precision; empty: it has. TF32 and BF16 came
/// with 8.0 (NVIDIA A100 Tensor Core GPU Architecture, 2020); torch computes in FP32 instead, or converts.
std::string why_not_in(Precision precision, int architecture);
/// Sets torch's global switches for TF32, which all arms of a process share: every step begins with it.
void use_switches_of(Precision precision);

/// Autocast for one forward pass; empties the cache of cast weights when it ends, since they change with every step.
class Autocast {
 public:
  Autocast(Precision precision, torch::Device device);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  torch::DeviceType device_;
  bool was_enabled_;
  torch::ScalarType was_dtype_;
};

/// Scales the loss so that small FP16 gradients do not vanish (P. Micikevicius et al., arXiv:1710.03740), with torch's
/// defaults: 65536 at first, halved when a gradient is not finite, doubled after 2000 steps without. All on the device:
/// nothing waits.
class GradScaler {
 public:
  explicit GradScaler(torch::Device device);
  torch::Tensor scale(const torch::Tensor& loss) const { return loss * scale_; }
  /// Divides the gradients by the scale, and keeps whether one of them is not finite.
  void unscale(const std::vector<torch::Tensor>& gradients);
  /// 1 when a gradient was not finite, else 0: the optimizer then leaves its parameters as they are. An FP32
  /// scalar.
  const torch::Tensor& found_inf() const { return found_inf_; }
  void update();
  double current_scale() const { return scale_.item<double>(); }

 private:
  torch::Tensor scale_;
  torch::Tensor growth_steps_;
  torch::Tensor found_inf_;
};

}  // namespace gpulift
