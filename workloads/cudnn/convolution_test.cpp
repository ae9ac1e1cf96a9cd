#include "workloads/cudnn/convolution.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "core/cuda/error.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

constexpr ConvolutionPass kPasses[] = {ConvolutionPass::kForward, ConvolutionPass::kDataGradient,
                                       ConvolutionPass::kFilterGradient};

TEST(Resnet50Layer, ThreeByThreesAreOfEqualWork) {
  EXPECT_EQ(resnet50_layer("conv2_3x3").flops(), 2.0 * 32 * 56 * 56 * 64 * 64 * 9);
  EXPECT_EQ(resnet50_layer("conv4_3x3").flops(), resnet50_layer("conv2_3x3").flops());
  EXPECT_EQ(resnet50_layer("conv5_3x3").flops(), resnet50_layer("conv2_3x3").flops());
  EXPECT_EQ(resnet50_layer("conv2_expand").flops(), 2.0 * 32 * 56 * 56 * 64 * 256);
  EXPECT_THROW(resnet50_layer("conv6"), std::invalid_argument);
}

TEST(ConvolutionPassNames, AreRead) {
  EXPECT_EQ(parse_convolution_pass("forward"), ConvolutionPass::kForward);
  EXPECT_EQ(parse_convolution_pass("data_gradient"), ConvolutionPass::kDataGradient);
  EXPECT_EQ(parse_convolution_pass("filter_gradient"), ConvolutionPass::kFilterGradient);
  EXPECT_THROW(parse_convolution_pass("backward"), std::invalid_argument);
}

TEST(ShapesOfEqualWork, HaveAsManyPixelsAndNoneTwice) {
  const ConvolutionShape shape = resnet50_layer("conv4_3x3");
  const std::vector<ConvolutionShape> shapes = shapes_of_equal_work(shape);
  std::vector<std::int64_t> heights;
  for (const ConvolutionShape& one : shapes) {
    EXPECT_EQ(one.flops(), shape.flops());
    EXPECT_EQ(one.height * one.width, 196);
    heights.push_back(one.height);
  }
  EXPECT_EQ(heights, (std::vector<std::int64_t>{4, 7, 14, 28, 49}));
  EXPECT_GT(shapes_of_equal_work(resnet50_layer("conv2_3x3")).size(), 10U);
  EXPECT_THROW(shapes_of_equal_work({1, 1, 8, 8, 1, 3, 2}), std::invalid_argument);
}

TEST(ConvolutionPlan, ComesBackFromItsText) {
  const ConvolutionPlan plan{"eng3_k2=1", 1.5, 2e-5, 1.5e-5, 12};
  const ConvolutionPlan back = parse_convolution_plan(to_string(plan));
  EXPECT_EQ(back.name, plan.name);
  EXPECT_EQ(back.search_s, plan.search_s);
  EXPECT_EQ(back.first_s, plan.first_s);
  EXPECT_EQ(back.best_s, plan.best_s);
  EXPECT_EQ(back.timed, plan.timed);
}

TEST(ConvolutionPlan, IsNotReadFromAnotherText) {
  for (const char* text : {"", "eng3", "eng3 1 2 3", "eng3 1 2 3 x", "eng3 1 2 3 4 5"}) {
    EXPECT_THROW(parse_convolution_plan(text), std::invalid_argument) << text;
  }
}

TEST(ConvolutionPlan, ASearchPaysAfterWhatItTookOverWhatItSaves) {
  EXPECT_DOUBLE_EQ((ConvolutionPlan{"", 1, 3e-5, 2e-5, 2}.break_even_steps()), 1e5);
  EXPECT_TRUE(std::isinf(ConvolutionPlan{"", 1, 2e-5, 2e-5, 2}.break_even_steps()));
}

using CudnnConvolutionOnDevice = DeviceTest;

TEST_F(CudnnConvolutionOnDevice, EveryPassIsRightInBothLayoutsAndTypes) {
  const CudnnLibrary library = open_cudnn();
  for (const ConvolutionPass pass : kPasses) {
    for (const ImageLayout layout : {ImageLayout::kNchw, ImageLayout::kNhwc}) {
      for (const ElementType type : {ElementType::kFp16, ElementType::kBf16}) {
        CudnnConvolution convolution(device(), library, {{8, 64, 14, 14, 128, 3, 1}, pass, layout, type}, 3);
        convolution.use_first();
        convolution.poison(stream());
        EXPECT_TRUE(std::isnan(convolution.error(stream())));
        convolution.enqueue(stream());
        const double error = convolution.error(stream());
        EXPECT_LE(error, convolution_tolerance(type));
        EXPECT_GT(error, 0) << "no rounding: compared with itself";
      }
    }
  }
}

TEST_F(CudnnConvolutionOnDevice, ASearchFindsAPlanThatIsFoundAgainByItsName) {
  const CudnnLibrary library = open_cudnn();
  const ConvolutionTask task{{8, 64, 14, 14, 64, 3, 1}};
  CudnnConvolution searched(device(), library, task, 3);
  const ConvolutionPlan plan = searched.search();
  EXPECT_GT(plan.timed, 0);
  EXPECT_GT(plan.best_s, 0);
  EXPECT_LE(plan.best_s, plan.first_s);
  EXPECT_GT(plan.search_s, plan.best_s);
  CudnnConvolution again(device(), library, task, 3);
  again.use(plan.name);
  again.enqueue(stream());
  EXPECT_LE(again.error(stream()), convolution_tolerance(task.type));
  EXPECT_THROW(again.use("eng999"), NotSupported);
}

TEST_F(CudnnConvolutionOnDevice, AReshapedOneComputesTheNewShape) {
  const CudnnLibrary library = open_cudnn();
  CudnnConvolution convolution(device(), library, {{8, 64, 16, 16, 64, 3, 1}}, 3);
  convolution.reshape({8, 64, 8, 32, 64, 3, 1});
  convolution.use_first();
  convolution.enqueue(stream());
  EXPECT_LE(convolution.error(stream()), convolution_tolerance(ElementType::kBf16));
  EXPECT_THROW(convolution.reshape({8, 64, 8, 16, 64, 3, 1}), std::invalid_argument);
}

}  // namespace
}  // namespace gpulift
