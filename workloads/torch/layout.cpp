#include "layout.hpp"

#include <ATen/cuda/CUDAGraph.h>
#include <ATen/record_function.h>
#include <c10/util/StringUtil.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <torch/types.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/cuda/check.hpp"
#include "step_graph.hpp"

namespace gpulift {
namespace {

struct Copies {
  std::mutex mutex;
  std::vector<std::string> sizes;
};

/// Torch's observers are plain functions: what they see must lie where all threads find it.
Copies& copies_seen() {
  static Copies copies;
  return copies;
}

/// Channels first and not last; where there is one channel or one pixel, both are the same.
bool is_channels_first(const torch::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_contiguous(torch::MemoryFormat::ChannelsLast);
}
bool is_channels_last(const torch::Tensor& tensor) {
  return tensor.is_contiguous(torch::MemoryFormat::ChannelsLast) && !tensor.is_contiguous();
}

/// Every conversion ends in copy_(target, source).
std::unique_ptr<at::ObserverContext> see_copy(const at::RecordFunction& call) {
  if (std::string_view(call.name()) != "aten::copy_") return nullptr;
  const auto inputs = call.inputs();
  if (inputs.size() < 2 || !inputs[0].isTensor() || !inputs[1].isTensor()) return nullptr;
  const torch::Tensor& target = inputs[0].toTensor();
  const torch::Tensor& source = inputs[1].toTensor();
  if (target.dim() != 4 || source.dim() != 4) return nullptr;
  if ((is_channels_first(target) && is_channels_last(source)) ||
      (is_channels_last(target) && is_channels_first(source))) {
    Copies& copies = copies_seen();
    const std::lock_guard lock(copies.mutex);
    copies.sizes.push_back(c10::Join("x", target.sizes()));
  }
  return nullptr;
}

class CopyObserver {
 public:
  CopyObserver()
      : handle_(at::addGlobalCallback(
            at::RecordFunctionCallback(see_copy).needsInputs(true).scopes({at::RecordScope::FUNCTION}))) {}
  ~CopyObserver() { at::removeCallback(handle_); }
  CopyObserver(const CopyObserver&) = delete;
  CopyObserver& operator=(const CopyObserver&) = delete;

 private:
  at::CallbackHandle handle_;
};

/// A function of the driver by the version that brought its form. Null where the driver is older.
template <typename Function>
Function driver_function(const char* name, unsigned version) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
  check(cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &status));
  return reinterpret_cast<Function>(found);
}

/// Also of kernels that the runtime does not know, such as those that cuDNN loads through the driver.
class KernelNames {
 public:
  KernelNames()
      : params_(driver_function<decltype(params_)>("cuGraphKernelNodeGetParams", 12000)),
        function_name_(driver_function<decltype(function_name_)>("cuFuncGetName", 12030)),
        kernel_name_(driver_function<decltype(kernel_name_)>("cuKernelGetName", 12030)) {
    if (params_ == nullptr || function_name_ == nullptr || kernel_name_ == nullptr) {
      throw std::runtime_error("the driver cannot name kernels: it is older than CUDA 12.3");
    }
  }

  std::string of(cudaGraphNode_t node) const {
    CUDA_KERNEL_NODE_PARAMS_v2 params{};
    const char* name = nullptr;
    if (params_(node, &params) != CUDA_SUCCESS) throw std::runtime_error("a captured kernel has no parameters");
    const CUresult result =
        params.func != nullptr ? function_name_(&name, params.func) : kernel_name_(&name, params.kern);
    if (result != CUDA_SUCCESS || name == nullptr) throw std::runtime_error("a captured kernel has no name");
    return name;
  }

 private:
  CUresult (*params_)(CUgraphNode, CUDA_KERNEL_NODE_PARAMS_v2*);
  CUresult (*function_name_)(const char**, CUfunction);
  CUresult (*kernel_name_)(const char**, CUkernel);
};

bool converts_layout(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name.find("nchwtonhwc") != std::string::npos || name.find("nhwctonchw") != std::string::npos;
}

std::vector<cudaGraphNode_t> nodes_of(cudaGraph_t graph) {
  std::size_t count = 0;
  check(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  check(cudaGraphGetNodes(graph, nodes.data(), &count));
  return nodes;
}

}  // namespace

std::vector<std::string> layout_copies(const std::function<void()>& work) {
  Copies& copies = copies_seen();
  const auto take = [&copies] {
    const std::lock_guard lock(copies.mutex);
    return std::exchange(copies.sizes, {});
  };
  take();  // what work that threw has left
  const CopyObserver observer;
  work();
  return take();
}

std::int64_t layout_kernels(const std::function<void()>& work) {
  const KernelNames names;
  at::cuda::CUDAGraph graph(/*keep_graph=*/true);
  capture(graph, work);
  std::int64_t kernels = 0;
  for (const cudaGraphNode_t node : nodes_of(graph.raw_cuda_graph())) {
    cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
    check(cudaGraphNodeGetType(node, &type));
    if (type == cudaGraphNodeTypeKernel && converts_layout(names.of(node))) ++kernels;
  }
  return kernels;
}

}  // namespace gpulift
