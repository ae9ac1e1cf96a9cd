#pragma once
// cuDNN's graphs of operations: what one computes, which plans the library has for it, and how they are enqueued. The
// headers of the frontend, through which they are made, take longer to compile than all else here: graph.cpp alone sees
// them.

#include <driver_types.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "kernels/convolution_data.hpp"

struct cudnnContext;  // what cuDNN's handle points to

namespace gpulift {

/// The version of the library in use, for Trial::version(): "9.19.0". Throws NotSupported where this was built for
/// another major or minor version.
std::string cudnn_version();
/// As above, of the number that cudnnGetVersion() gives.
std::string cudnn_version_of(std::size_t number);

/// An open library, which graphs share.
using CudnnLibrary = std::shared_ptr<cudnnContext>;
CudnnLibrary open_cudnn();

class CudnnGraph {
 public:
  /// Accumulates in FP32. Its tensors are the operands in the order of ConvolutionTerm, then what the pass writes.
  /// Throws NotSupported where the library has no plan.
  static CudnnGraph convolution(const CudnnLibrary& library, const ConvolutionTensors& tensors, ConvolutionPass pass,
                                ElementType type);

  CudnnGraph(CudnnGraph&&) noexcept;
  CudnnGraph& operator=(CudnnGraph&&) noexcept;
  ~CudnnGraph();

  /// How many plans the library's heuristic offers, what it takes for the best first.
  int plans() const;
  /// Engine and knobs, without spaces; another plan has another name.
  std::string plan_name(int plan) const;
  /// Readies a plan. Throws NotSupported where it does not run here, computes in fewer bits than asked, or takes more
  /// than 1 GiB of workspace.
  void build(int plan);
  /// Readies the first plan that runs here, and returns its number. Throws NotSupported where none does.
  int build_first();
  /// Of a plan that was built.
  std::size_t workspace_bytes(int plan) const;
  /// A plan that was built, on the graph's tensors in their order. Never synchronises, save for the first time.
  void enqueue(int plan, std::span<void* const> tensors, void* workspace, cudaStream_t stream) const;

 private:
  class Impl;
  explicit CudnnGraph(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpulift
