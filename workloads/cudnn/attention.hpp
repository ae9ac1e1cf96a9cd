#pragma once
// cuDNN's fused causal attention: scores never reach memory.

#include <driver_types.h>

#include <cstddef>
#include <string>

#include "core/cuda/buffer.hpp"
#include "core/cuda/device.hpp"
#include "workloads/attention.hpp"
#include "workloads/cudnn/graph.hpp"

namespace gpulift {

class FusedAttention {
 public:
  /// Throws NotSupported where the library has no fused form of this shape and type for the device.
  FusedAttention(Device& device, const CudnnLibrary& library, ElementType type, const AttentionShape& shape);

  /// The plans of the forward and of the backward pass.
  std::string plan_names() const;
  /// Never synchronises, never allocates.
  void enqueue(const AttentionTensors& operands, const AttentionTensors& results, cudaStream_t stream) const;

 private:
  CudnnGraph forward_;
  CudnnGraph backward_;
  int forward_plan_;
  int backward_plan_;
  DeviceBuffer<float> sums_;  // of each row, for the backward pass
  DeviceBuffer<std::byte> workspace_;
};

}  // namespace gpulift
