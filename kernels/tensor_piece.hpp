#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gpulift {

/// A block's share of a launch over many tensors: numbers index * length to (index + 1) * length of one of them.
struct TensorPiece {
  std::uint32_t tensor;
  std::uint32_t index;
};

/// Tensors of so many numbers, cut into pieces of `length`. Those of one tensor lie behind one another.
inline std::vector<TensorPiece> cut_tensors(std::span<const std::size_t> counts, std::size_t length) {
  std::vector<TensorPiece> pieces;
  for (std::uint32_t tensor = 0; tensor < counts.size(); ++tensor) {
    for (std::uint32_t index = 0; index * length < counts[tensor]; ++index) pieces.push_back({tensor, index});
  }
  return pieces;
}

/// How many pieces there are of each tensor.
inline std::vector<std::size_t> pieces_of_tensors(std::span<const std::size_t> counts, std::size_t length) {
  std::vector<std::size_t> pieces;
  for (const std::size_t count : counts) pieces.push_back((count + length - 1) / length);
  return pieces;
}

}  // namespace gpulift
