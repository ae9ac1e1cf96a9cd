#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace gpulift {

/// How many numbers each tensor of a GPT-2 has, in the order of its layers; all are multiples of 8. "gpt2": the 148
/// tensors of 124M. "small": 52 of 0.9M, four layers of width 128 for 512 tokens of a context of 128.
inline std::vector<std::size_t> gpt_tensors(std::string_view model) {
  struct Size {
    std::size_t layers, width, vocabulary, context;
  };
  const Size size = model == "gpt2" ? Size{12, 768, 50304, 1024} : Size{4, 128, 512, 128};
  const std::size_t w = size.width;
  std::vector<std::size_t> counts{size.vocabulary * w, size.context * w};
  for (std::size_t layer = 0; layer < size.layers; ++layer) {
    // Norm, queries with keys and values, projection, norm, MLP up and down: a weight and a bias each.
    counts.insert(counts.end(), {w, w, 3 * w * w, 3 * w, w * w, w, w, w, 4 * w * w, 4 * w, 4 * w * w, w});
  }
  counts.insert(counts.end(), {w, w});
  return counts;
}

}  // namespace gpulift
