#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace gpulift {

/// How many numbers each tensor of a model has, in the order of its layers; all are multiples of 8. "gpt2": the 148
/// tensors of GPT-2 124M. "llama_8b_layer": the 9 of 218M of one layer. "small": 52 of 0.9M, a GPT-2 of four layers of
/// width 128 for 512 tokens of a context of 128.
inline std::vector<std::size_t> model_tensors(std::string_view model) {
  if (model == "llama_8b_layer") {
    constexpr std::size_t kWidth = 4096;
    constexpr std::size_t kOfHeads = 1024;  // of keys and of values, which four heads share
    constexpr std::size_t kHidden = 14336;
    return {kWidth, kWidth * kWidth,  kOfHeads * kWidth, kOfHeads * kWidth, kWidth * kWidth,
            kWidth, kHidden * kWidth, kHidden * kWidth,  kHidden * kWidth};
  }
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
