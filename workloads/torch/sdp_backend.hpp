#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <string>

namespace gpulift {

/// What computes at::scaled_dot_product_attention.
enum class SdpBackend { kMath, kMemoryEfficient, kFlash, kCudnn };

/// Leaves at::scaled_dot_product_attention this back end alone: one that cannot run throws, instead of another that
/// runs in its place. A switch of the process.
void use_only(SdpBackend backend);
void use_any_backend();

/// Every back end may run again when this ends.
class BackendsRestored {
 public:
  BackendsRestored() = default;
  ~BackendsRestored() { use_any_backend(); }
  BackendsRestored(const BackendsRestored&) = delete;
  BackendsRestored& operator=(const BackendsRestored&) = delete;
};

/// Query, key and value of a causal self-attention, as one linear layer makes them.
struct AttentionShape {
  std::int64_t rows = 1;
  std::int64_t heads = 1;
  std::int64_t tokens = 1;
  std::int64_t head_width = 1;
};

/// Why the back end cannot train with this shape and type on this device; empty: it can. Any may run afterwards.
std::string why_not(SdpBackend backend, const AttentionShape& shape, torch::ScalarType type, torch::Device device);

/// How often each form of attention ran to make `result`, by its name, as the graph of its gradients tells: "explicit",
/// "math", "memory_efficient", "flash" or "cudnn". Forms that did not run are left out.
std::map<std::string, int> attention_forms_behind(const torch::Tensor& result);

}  // namespace gpulift
