#include "workloads/cudnn/attention.hpp"

#include <algorithm>
#include <array>

namespace gpulift {

FusedAttention::FusedAttention(Device& device, const CudnnLibrary& library, ElementType type,
                               const AttentionShape& shape)
    : forward_(CudnnGraph::attention(library, shape, type)),
      backward_(CudnnGraph::attention_gradients(library, shape, type)),
      forward_plan_(forward_.build_first()),
      backward_plan_(backward_.build_first()),
      sums_(device, static_cast<std::size_t>(shape.matrices() * shape.tokens)),
      workspace_(device, std::max(forward_.workspace_bytes(forward_plan_), backward_.workspace_bytes(backward_plan_))) {
}

std::string FusedAttention::plan_names() const {
  return forward_.plan_name(forward_plan_) + " " + backward_.plan_name(backward_plan_);
}

void FusedAttention::enqueue(const AttentionTensors& operands, const AttentionTensors& results,
                             cudaStream_t stream) const {
  const std::array<void*, 5> forward{operands.at(0), operands.at(1), operands.at(2), results.at(0), sums_.data()};
  forward_.enqueue(forward_plan_, forward, workspace_.data(), stream);
  const std::array<void*, 9> backward{operands.at(0), operands.at(1), operands.at(2), results.at(0), operands.at(3),
                                      sums_.data(),   results.at(1),  results.at(2),  results.at(3)};
  backward_.enqueue(backward_plan_, backward, workspace_.data(), stream);
}

}  // namespace gpulift
