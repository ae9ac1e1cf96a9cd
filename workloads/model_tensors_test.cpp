#include "workloads/model_tensors.hpp"

#include <gtest/gtest.h>

#include <numeric>

namespace gpulift {
namespace {

TEST(ModelTensors, AreThoseOfTheModels) {
  const std::vector<std::size_t> counts = model_tensors("gpt2");
  EXPECT_EQ(counts.size(), 148);
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::size_t{0}), 124'475'904) << "with the head tied";
  const std::vector<std::size_t> layer = model_tensors("llama_8b_layer");
  EXPECT_EQ(layer.size(), 9);
  EXPECT_EQ(std::accumulate(layer.begin(), layer.end(), std::size_t{0}), 218'112'000);
  EXPECT_EQ(model_tensors("small").size(), 52);
  for (const char* model : {"gpt2", "llama_8b_layer", "small"}) {
    for (const std::size_t count : model_tensors(model)) EXPECT_EQ(count % 8, 0) << "whole packs, one behind another";
  }
}

}  // namespace
}  // namespace gpulift
