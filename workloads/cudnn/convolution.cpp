#include "workloads/cudnn/convolution.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "core/cuda/check.hpp"
#include "core/cuda/device_clock.hpp"
#include "core/cuda/handles.hpp"

namespace gpulift {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::uint64_t kNextSeed = 0xD1B54A32D192ED03ull;

std::size_t bytes_of(const ImageTensor& tensor, ElementType type) {
  const auto bytes = static_cast<std::size_t>(tensor.elements() * element_bytes(type));
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

double elapsed_s(const UniqueEvent& begin, const UniqueEvent& end) {
  float time_ms = 0;
  check(cudaEventElapsedTime(&time_ms, begin.get(), end.get()));
  return 1e-3 * static_cast<double>(time_ms);
}

}  // namespace

ConvolutionShape resnet50_layer(std::string_view name) {
  constexpr std::int64_t kImages = 32;
  if (name == "conv2_3x3") return {kImages, 64, 56, 56, 64, 3, 1};
  if (name == "conv2_expand") return {kImages, 64, 56, 56, 256, 1, 1};
  if (name == "conv4_3x3") return {kImages, 256, 14, 14, 256, 3, 1};
  if (name == "conv5_3x3") return {kImages, 512, 7, 7, 512, 3, 1};
  throw std::invalid_argument("no such layer: '" + std::string(name) + "'");
}

ConvolutionPass parse_convolution_pass(std::string_view name) {
  if (name == "forward") return ConvolutionPass::kForward;
  if (name == "data_gradient") return ConvolutionPass::kDataGradient;
  if (name == "filter_gradient") return ConvolutionPass::kFilterGradient;
  throw std::invalid_argument("no such pass of a convolution: '" + std::string(name) + "'");
}

std::vector<ConvolutionShape> shapes_of_equal_work(const ConvolutionShape& shape) {
  constexpr std::int64_t kShortest = 4;
  if (shape.stride != 1) throw std::invalid_argument("shapes_of_equal_work: a stride of 1 alone");
  std::vector<ConvolutionShape> shapes;
  const std::int64_t pixels = shape.height * shape.width;
  for (std::int64_t height = kShortest; height <= pixels / kShortest; ++height) {
    if (pixels % height != 0) continue;
    shapes.push_back(shape);
    shapes.back().height = height;
    shapes.back().width = pixels / height;
  }
  return shapes;
}

// Rounding the result to nearest changes it by 0.425 u on average, see matmul_tolerance(); the sums are in FP32. Four
// times that is allowed: a term that is missing at an edge makes a hundredth and more.
double convolution_tolerance(ElementType type) { return 4 * 0.425 * (type == ElementType::kBf16 ? 0x1p-8 : 0x1p-11); }

double ConvolutionPlan::break_even_steps() const {
  return best_s < first_s ? search_s / (first_s - best_s) : std::numeric_limits<double>::infinity();
}

std::string to_string(const ConvolutionPlan& plan) {
  std::ostringstream text;
  text << plan.name << ' ' << plan.search_s << ' ' << plan.first_s << ' ' << plan.best_s << ' ' << plan.timed;
  return text.str();
}

ConvolutionPlan parse_convolution_plan(std::string_view text) {
  std::istringstream stream{std::string(text)};
  ConvolutionPlan plan;
  stream >> plan.name >> plan.search_s >> plan.first_s >> plan.best_s >> plan.timed;
  if (std::string rest; stream.fail() || stream >> rest) {
    throw std::invalid_argument("not a convolution's plan: '" + std::string(text) + "'");
  }
  return plan;
}

CudnnConvolution::CudnnConvolution(Device& device, const CudnnLibrary& library, const ConvolutionTask& task,
                                   std::uint64_t seed)
    : device_(device),
      library_(library),
      task_(task),
      tensors_(task.shape, task.layout),
      graph_(CudnnGraph::convolution(library, tensors_, task.pass, task.type)),
      check_(device),
      seed_(seed),
      images_bytes_(bytes_of(tensors_.images, task.type)),
      filters_bytes_(bytes_of(tensors_.filters, task.type)),
      set_bytes_(images_bytes_ + filters_bytes_ + bytes_of(tensors_.results, task.type)),
      sets_(set_bytes_, 3 * device.l2_bytes() + set_bytes_),
      data_(device, sets_.bytes()),
      workspace_(device, 0) {
  const UniqueStream stream = make_stream();
  for (std::size_t set = 0; set < sets_.slots(); ++set) {
    const Set at = set_at(sets_.next_offset());
    fill_images(at.images, task.type, tensors_.images, seed, stream.get());
    fill_images(at.filters, task.type, tensors_.filters, seed ^ kNextSeed, stream.get());
    fill_images(at.results, task.type, tensors_.results, seed + kNextSeed, stream.get());
  }
  check(cudaStreamSynchronize(stream.get()));
}

CudnnConvolution::Set CudnnConvolution::set_at(std::size_t offset) const {
  std::byte* const images = data_.data() + offset;
  return {images, images + images_bytes_, images + images_bytes_ + filters_bytes_};
}

void CudnnConvolution::use(int plan) {
  graph_.build(plan);
  const std::size_t bytes = graph_.workspace_bytes(plan);
  if (bytes > workspace_.bytes()) workspace_ = DeviceBuffer<std::byte>(device_, bytes);
  plan_ = plan;
  // A plan's kernels are loaded when it first runs, which would wait for a stream that is held.
  const UniqueStream stream = make_stream();
  enqueue(stream.get());
  check(cudaStreamSynchronize(stream.get()));
}

void CudnnConvolution::use_first() { use(graph_.build_first()); }

void CudnnConvolution::use(const std::string& plan_name) {
  for (int plan = 0; plan < graph_.plans(); ++plan) {
    if (graph_.plan_name(plan) == plan_name) return use(plan);
  }
  throw NotSupported("cuDNN does not offer the plan " + plan_name);
}

ConvolutionPlan CudnnConvolution::search() {
  struct Candidate {
    int plan;
    int steps;
    double time_s;
  };
  constexpr int kMostPlans = 10;  // as in PyTorch, whose benchmark mode this is
  constexpr int kRounds = 3;
  constexpr double kWindow_s = 5e-4;
  constexpr double kMostSteps = 20;
  const auto begun = std::chrono::steady_clock::now();
  const UniqueStream stream = make_stream();
  std::vector<Candidate> candidates;
  for (int plan = 0; plan < graph_.plans() && candidates.size() < kMostPlans; ++plan) {
    try {
      use(plan);
    } catch (const NotSupported&) {
      continue;
    }
    const int steps = static_cast<int>(std::clamp(kWindow_s / window_s(1, stream.get()), 1.0, kMostSteps));
    candidates.push_back({plan, steps, std::numeric_limits<double>::infinity()});
  }
  if (candidates.empty()) throw NotSupported("none of cuDNN's plans for this runs on this device");
  // In turn, so that a drift of the clock meets all of them; the best window counts.
  for (int round = 0; round < kRounds; ++round) {
    for (Candidate& candidate : candidates) {
      plan_ = candidate.plan;
      candidate.time_s = std::min(candidate.time_s, window_s(candidate.steps, stream.get()) / candidate.steps);
    }
  }
  const Candidate& best = *std::ranges::min_element(candidates, {}, &Candidate::time_s);
  use(best.plan);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begun;
  return {graph_.plan_name(best.plan), taken.count(), candidates.front().time_s, best.time_s,
          static_cast<int>(candidates.size())};
}

/// Device time of steps that were queued behind a hold, so that their launches do not count.
double CudnnConvolution::window_s(int steps, cudaStream_t stream) {
  constexpr double kLimit_s = 1;
  const UniqueEvent begin = make_timing_event();
  const UniqueEvent end = make_timing_event();
  Hold hold;
  hold.engage(stream, kLimit_s);
  check(cudaEventRecord(begin.get(), stream));
  for (int step = 0; step < steps; ++step) enqueue(stream);
  check(cudaEventRecord(end.get(), stream));
  hold.release();
  check(cudaStreamSynchronize(stream));
  return elapsed_s(begin, end);
}

void CudnnConvolution::reshape(const ConvolutionShape& shape) {
  const ConvolutionTensors tensors(shape, task_.layout);
  if (tensors.images.elements() != tensors_.images.elements() ||
      tensors.results.elements() != tensors_.results.elements() ||
      tensors.filters.elements() != tensors_.filters.elements()) {
    throw std::invalid_argument("CudnnConvolution: a shape of other work");
  }
  graph_ = CudnnGraph::convolution(library_, tensors, task_.pass, task_.type);
  task_.shape = shape;
  tensors_ = tensors;
  plan_ = -1;
}

void CudnnConvolution::enqueue(cudaStream_t stream) {
  const Set at = set_at(sets_.next_offset());
  std::array<void*, 3> places{at.images, at.filters, at.results};
  if (task_.pass == ConvolutionPass::kDataGradient) places = {at.results, at.filters, at.images};
  if (task_.pass == ConvolutionPass::kFilterGradient) places = {at.images, at.results, at.filters};
  graph_.enqueue(plan_, places, workspace_.data(), stream);
}

void CudnnConvolution::poison(cudaStream_t stream) {
  const ImageTensor& written = tensors_.written_by(task_.pass);
  const auto bytes = static_cast<std::size_t>(written.elements() * element_bytes(task_.type));
  for (std::size_t set = 0; set < sets_.slots(); ++set) {
    const Set at = set_at(set * sets_.slot_bytes());
    void* const output = task_.pass == ConvolutionPass::kForward        ? at.results
                         : task_.pass == ConvolutionPass::kDataGradient ? at.images
                                                                        : at.filters;
    check(cudaMemsetAsync(output, 0xFF, bytes, stream));
  }
}

double CudnnConvolution::error(cudaStream_t stream) const {
  const Set at = set_at(sets_.offset());
  return check_.error({at.images, at.filters, at.results}, task_.type, tensors_, task_.pass, seed_, stream);
}

}  // namespace gpulift
