#pragma once
// Convolutions of ResNet-50 through cuDNN: operands on the device, a plan, and the search for the fastest one.

#include <driver_types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/cuda/buffer.hpp"
#include "core/cuda/device.hpp"
#include "kernels/convolution_data.hpp"
#include "workloads/cudnn/graph.hpp"
#include "workloads/rotation.hpp"

namespace gpulift {

/// A layer of ResNet-50 at 32 images: "conv2_3x3", "conv2_expand", "conv4_3x3", "conv5_3x3". Throws
/// std::invalid_argument for another name.
ConvolutionShape resnet50_layer(std::string_view name);
/// "forward", "data_gradient", "filter_gradient"; else as above.
ConvolutionPass parse_convolution_pass(std::string_view name);

/// The same work with images of the same number of pixels, the shape itself among them: each side at least 4 pixels.
/// Of a stride of 1 alone: another throws std::invalid_argument.
std::vector<ConvolutionShape> shapes_of_equal_work(const ConvolutionShape& shape);

/// The largest relative Frobenius error that a pass may have whose operands are exact.
double convolution_tolerance(ElementType type);

/// What a search found. Valid for the same version of cuDNN and the same model of GPU.
struct ConvolutionPlan {
  std::string name;
  double search_s = 0;  // what the search took, compiling included
  double first_s = 0;   // a convolution by the heuristic's first plan
  double best_s = 0;    // and by the fastest
  int timed = 0;        // plans that were

  /// After so many steps the search has paid for itself; infinite where the first plan was the fastest.
  double break_even_steps() const;
};

/// "<name> <search_s> <first_s> <best_s> <timed>".
std::string to_string(const ConvolutionPlan& plan);
/// Throws std::invalid_argument for anything that to_string() does not write.
ConvolutionPlan parse_convolution_plan(std::string_view text);

struct ConvolutionTask {
  ConvolutionShape shape;
  ConvolutionPass pass = ConvolutionPass::kForward;
  ImageLayout layout = ImageLayout::kNhwc;
  ElementType type = ElementType::kBf16;
};

/// A convolution with its tensors and workspace on the device. The tensors are rotated, so that a step does not find
/// those of the step before in the L2 cache.
class CudnnConvolution {
 public:
  /// Fills the operands. Throws NotSupported where the library has no plan.
  CudnnConvolution(Device& device, const CudnnLibrary& library, const ConvolutionTask& task, std::uint64_t seed);

  /// The heuristic's first plan that runs here. Each way to choose a plan runs it once, and synchronises.
  void use_first();
  /// Throws NotSupported where the heuristic does not offer it.
  void use(const std::string& plan_name);
  /// Compiles and times what the heuristic offers, and uses the fastest.
  ConvolutionPlan search();
  /// The same work on images of other sides, with no plan yet.
  void reshape(const ConvolutionShape& shape);

  /// Into the next tensors. Never synchronises, never allocates.
  void enqueue(cudaStream_t stream);
  /// Overwrites what the pass writes with NaN.
  void poison(cudaStream_t stream);
  /// Of the latest step: see convolution_tolerance(). Synchronises.
  double error(cudaStream_t stream) const;

 private:
  struct Set {
    std::byte* images;
    std::byte* filters;
    std::byte* results;
  };

  void use(int plan);
  Set set_at(std::size_t offset) const;
  double window_s(int steps, cudaStream_t stream);

  Device& device_;
  CudnnLibrary library_;
  ConvolutionTask task_;
  ConvolutionTensors tensors_;
  CudnnGraph graph_;
  ConvolutionCheck check_;
  std::uint64_t seed_;
  std::size_t images_bytes_;
  std::size_t filters_bytes_;
  std::size_t set_bytes_;
  Rotation sets_;
  DeviceBuffer<std::byte> data_;
  DeviceBuffer<std::byte> workspace_;
  int plan_ = -1;
};

}  // namespace gpulift
