#include "workloads/cudnn/graph.hpp"

#include <cudnn_frontend.h>

#include <source_location>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/cuda/error.hpp"
#include "workloads/cudnn/check.hpp"

namespace gpulift {
namespace {

namespace fe = cudnn_frontend;

/// The first line of what the frontend says: one for each engine follows.
std::string failure_of(const fe::error_t& status, const std::source_location& place) {
  return describe_failure("cuDNN", "error " + std::to_string(static_cast<int>(status.code)),
                          status.err_msg.substr(0, status.err_msg.find('\n')), place);
}

void check(const fe::error_t& status, const std::source_location& place = std::source_location::current()) {
  if (status.is_good()) return;
  switch (status.code) {
    case fe::error_code_t::GRAPH_NOT_SUPPORTED:
    case fe::error_code_t::HEURISTIC_QUERY_FAILED:
    case fe::error_code_t::GRAPH_EXECUTION_PLAN_CREATION_FAILED:
    case fe::error_code_t::UNSUPPORTED_GRAPH_FORMAT:
      throw NotSupported(failure_of(status, place));
    default:
      throw Error(failure_of(status, place));
  }
}

fe::DataType_t type_of(ElementType type) {
  if (type == ElementType::kFp16) return fe::DataType_t::HALF;
  if (type == ElementType::kBf16) return fe::DataType_t::BFLOAT16;
  throw std::invalid_argument("CudnnGraph: fp16 and bf16 alone");
}

std::string release_of(std::size_t number) {
  return std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100);
}

using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

std::vector<std::int64_t> numbers(const std::int64_t (&four)[4]) { return {std::begin(four), std::end(four)}; }

}  // namespace

class CudnnGraph::Impl {
 public:
  Impl(CudnnLibrary library, ElementType type) : library_(std::move(library)) {
    graph_.set_io_data_type(type_of(type))
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
  }

  fe::graph::Graph& graph() { return graph_; }

  Tensor operand(const ImageTensor& tensor) { return graph_.tensor(described(fe::graph::Tensor_attributes(), tensor)); }
  void result(const Tensor& result, const ImageTensor& tensor) { described(*result, tensor).set_output(true); }

  void find_plans() {
    constexpr std::int64_t kMostWorkspaceBytes = std::int64_t{1} << 30;
    check(graph_.validate());
    check(graph_.build_operation_graph(library_.get()));
    check(graph_.create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}));
    graph_.deselect_workspace_greater_than(kMostWorkspaceBytes);
    // All plans compute what the graph says: none rounds operands or sums to fewer bits, or transforms them.
    graph_.deselect_numeric_notes({fe::NumericalNote_t::DOWN_CONVERT_INPUTS,
                                   fe::NumericalNote_t::REDUCED_PRECISION_REDUCTION, fe::NumericalNote_t::WINOGRAD});
  }

  int plans() const { return static_cast<int>(graph_.get_execution_plan_count()); }

  std::string plan_name(int plan) const {
    std::string name;
    check(graph_.get_plan_name_at_index(plan, name));
    return name;
  }

  /// A plan that does not suit the device fails in many ways, of which none is told apart.
  void build(int plan) {
    const fe::error_t status = graph_.build_plan_at_index(plan);
    if (status.is_bad()) throw NotSupported(failure_of(status, std::source_location::current()));
  }

  std::size_t workspace_bytes(int plan) const {
    std::int64_t bytes = 0;
    check(graph_.get_workspace_size_plan_at_index(plan, bytes));
    return static_cast<std::size_t>(bytes);
  }

  void enqueue(int plan, std::span<void* const> tensors, void* workspace, cudaStream_t stream) const {
    if (static_cast<std::int64_t>(tensors.size()) != tensors_) {
      throw std::invalid_argument("CudnnGraph: " + std::to_string(tensors.size()) + " tensors, not " +
                                  std::to_string(tensors_));
    }
    std::unordered_map<std::int64_t, void*> places;
    for (std::size_t i = 0; i < tensors.size(); ++i) places.emplace(static_cast<std::int64_t>(i) + 1, tensors[i]);
    check(cudnnSetStream(library_.get(), stream));
    check(graph_.execute_plan_at_index(library_.get(), places, workspace, plan));
  }

 private:
  fe::graph::Tensor_attributes& described(fe::graph::Tensor_attributes&& attributes, const ImageTensor& tensor) {
    return described(attributes, tensor);
  }
  fe::graph::Tensor_attributes& described(fe::graph::Tensor_attributes& attributes, const ImageTensor& tensor) {
    return attributes.set_dim(numbers(tensor.sides)).set_stride(numbers(tensor.strides)).set_uid(++tensors_);
  }

  CudnnLibrary library_;
  fe::graph::Graph graph_;
  std::int64_t tensors_ = 0;
};

std::string cudnn_version() { return cudnn_version_of(cudnnGetVersion()); }

std::string cudnn_version_of(std::size_t number) {
  const std::string version = release_of(number) + "." + std::to_string(number % 100);
  if (release_of(number) != release_of(CUDNN_VERSION)) {
    throw NotSupported("cuDNN " + version + " is in use, but this was built for cuDNN " + release_of(CUDNN_VERSION) +
                       ": build it again, or take the other out of LD_LIBRARY_PATH");
  }
  return version;
}

CudnnLibrary open_cudnn() {
  cudnnHandle_t handle = nullptr;
  check(cudnnCreate(&handle));
  return {handle, [](cudnnHandle_t opened) { static_cast<void>(cudnnDestroy(opened)); }};
}

CudnnGraph CudnnGraph::convolution(const CudnnLibrary& library, const ConvolutionTensors& tensors, ConvolutionPass pass,
                                   ElementType type) {
  auto impl = std::make_unique<Impl>(library, type);
  const auto with_geometry = [&](auto attributes) {
    const std::vector<std::int64_t> padding(2, tensors.shape.padding());
    const std::vector<std::int64_t> stride(2, tensors.shape.stride);
    attributes.set_padding(padding).set_stride(stride).set_dilation({1, 1});
    return attributes;
  };
  if (pass == ConvolutionPass::kForward) {
    const Tensor images = impl->operand(tensors.images);
    const Tensor filters = impl->operand(tensors.filters);
    impl->result(impl->graph().conv_fprop(images, filters, with_geometry(fe::graph::Conv_fprop_attributes())),
                 tensors.results);
  } else if (pass == ConvolutionPass::kDataGradient) {
    const Tensor results = impl->operand(tensors.results);
    const Tensor filters = impl->operand(tensors.filters);
    impl->result(impl->graph().conv_dgrad(results, filters, with_geometry(fe::graph::Conv_dgrad_attributes())),
                 tensors.images);
  } else {
    const Tensor images = impl->operand(tensors.images);
    const Tensor results = impl->operand(tensors.results);
    impl->result(impl->graph().conv_wgrad(results, images, with_geometry(fe::graph::Conv_wgrad_attributes())),
                 tensors.filters);
  }
  impl->find_plans();
  return CudnnGraph(std::move(impl));
}

CudnnGraph::CudnnGraph(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CudnnGraph::CudnnGraph(CudnnGraph&&) noexcept = default;
CudnnGraph& CudnnGraph::operator=(CudnnGraph&&) noexcept = default;
CudnnGraph::~CudnnGraph() = default;

int CudnnGraph::plans() const { return impl_->plans(); }
std::string CudnnGraph::plan_name(int plan) const { return impl_->plan_name(plan); }
void CudnnGraph::build(int plan) { impl_->build(plan); }
int CudnnGraph::build_first() {
  for (int plan = 0; plan < plans(); ++plan) {
    try {
      build(plan);
      return plan;
    } catch (const NotSupported&) {
      continue;
    }
  }
  throw NotSupported("none of cuDNN's plans for this runs on this device");
}
std::size_t CudnnGraph::workspace_bytes(int plan) const { return impl_->workspace_bytes(plan); }
void CudnnGraph::enqueue(int plan, std::span<void* const> tensors, void* workspace, cudaStream_t stream) const {
  impl_->enqueue(plan, tensors, workspace, stream);
}

}  // namespace gpulift
