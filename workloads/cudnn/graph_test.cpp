#include "workloads/cudnn/graph.hpp"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <stdexcept>
#include <string>

#include "core/cuda/error.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

TEST(CudnnVersion, IsThatOfTheLibraryInUse) { EXPECT_TRUE(cudnn_version().starts_with("9.")) << cudnn_version(); }

TEST(CudnnVersion, OfAnotherReleaseIsNotSupported) {
  try {
    cudnn_version_of(99103);
    FAIL() << "9.91.3 was taken";
  } catch (const NotSupported& reason) {
    EXPECT_TRUE(std::string(reason.what()).starts_with("cuDNN 9.91.3 is in use, but this was built for cuDNN 9."))
        << reason.what();
  }
  EXPECT_THROW(cudnn_version_of(80907), NotSupported);
}

using CudnnGraphOnDevice = DeviceTest;

TEST_F(CudnnGraphOnDevice, PlansHaveNamesOfTheirOwnAndTheTensorsAreCounted) {
  const CudnnLibrary library = open_cudnn();
  const ConvolutionTensors tensors({8, 64, 16, 16, 64, 3, 1}, ImageLayout::kNhwc);
  CudnnGraph graph = CudnnGraph::convolution(library, tensors, ConvolutionPass::kForward, ElementType::kFp16);
  ASSERT_GT(graph.plans(), 0);
  std::set<std::string> names;
  for (int plan = 0; plan < graph.plans(); ++plan) {
    EXPECT_EQ(graph.plan_name(plan).find(' '), std::string::npos) << graph.plan_name(plan);
    names.insert(graph.plan_name(plan));
  }
  EXPECT_GT(names.size(), 1U);
  const std::array<void*, 2> too_few{};
  EXPECT_THROW(graph.enqueue(0, too_few, nullptr, stream()), std::invalid_argument);
}

TEST_F(CudnnGraphOnDevice, OtherTypesAreRefused) {
  const ConvolutionTensors tensors({8, 64, 16, 16, 64, 3, 1}, ImageLayout::kNhwc);
  EXPECT_THROW(CudnnGraph::convolution(open_cudnn(), tensors, ConvolutionPass::kForward, ElementType::kInt8),
               std::invalid_argument);
}

}  // namespace
}  // namespace gpulift
