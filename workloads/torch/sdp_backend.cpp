#include "sdp_backend.hpp"

#include <ATen/ops/_fused_sdp_choice.h>
#include <torch/csrc/autograd/function.h>

#include <unordered_set>
#include <vector>

namespace gpulift {
namespace {

void set_switches(bool math, bool memory_efficient, bool flash, bool cudnn) {
  auto& context = at::globalContext();
  context.setSDPUseMath(math);
  context.setSDPUseMemEfficient(memory_efficient);
  context.setSDPUseFlash(flash);
  context.setSDPUseCuDNN(cudnn);
}

/// The gradient's nodes that a form leaves. The math back end is made of other operations, of which one is its own.
const std::map<std::string, std::string>& forms_by_node() {
  static const std::map<std::string, std::string> forms{
      {"SoftmaxBackward0", "explicit"},
      {"SafeSoftmaxBackward0", "math"},
      {"ScaledDotProductEfficientAttentionBackward0", "memory_efficient"},
      {"ScaledDotProductFlashAttentionBackward0", "flash"},
      {"ScaledDotProductFlashAttentionForCpuBackward0", "flash"},
      {"ScaledDotProductCudnnAttentionBackward0", "cudnn"},
  };
  return forms;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

void use_only(SdpBackend backend) {
  set_switches(backend == SdpBackend::kMath, backend == SdpBackend::kMemoryEfficient, backend == SdpBackend::kFlash,
               backend == SdpBackend::kCudnn);
}

void use_any_backend() { set_switches(true, true, true, true); }

std::string why_not(SdpBackend backend, const AttentionShape& shape, torch::ScalarType type, torch::Device device) {
  const BackendsRestored restored;
  use_only(backend);
  const torch::Tensor all = torch::zeros({shape.rows, shape.tokens, 3 * shape.heads * shape.head_width},
                                         torch::TensorOptions(device).dtype(type).requires_grad(true));
  std::vector<torch::Tensor> parts = all.chunk(3, -1);
  for (torch::Tensor& part : parts) {
    part = part.view({shape.rows, shape.tokens, shape.heads, shape.head_width}).transpose(1, 2);
  }
  try {
    const auto choice = at::_fused_sdp_choice(parts[0], parts[1], parts[2], {}, /*dropout_p=*/0, /*is_causal=*/true);
    return choice < 0 ? "torch has no such back end for this shape, type and device" : "";
  } catch (const c10::Error& refusal) {
    return "torch has no such back end here: " + first_line(refusal.what_without_backtrace());
  }
}

std::map<std::string, int> attention_forms_behind(const torch::Tensor& result) {
  std::map<std::string, int> forms;
  std::unordered_set<torch::autograd::Node*> seen;
  std::vector<torch::autograd::Node*> open{result.grad_fn().get()};
  while (!open.empty()) {
    torch::autograd::Node* const node = open.back();
    open.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    const auto found = forms_by_node().find(node->name());
    if (found != forms_by_node().end()) ++forms[found->second];
    for (const torch::autograd::Edge& edge : node->next_edges()) open.push_back(edge.function.get());
  }
  return forms;
}

}  // namespace gpulift
