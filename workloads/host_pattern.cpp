#include "workloads/host_pattern.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "kernels/pattern.hpp"

namespace gpulift {
namespace {

static_assert(std::endian::native == std::endian::little, "the pattern's words are stored low byte first");

using Word = std::array<std::byte, sizeof(std::uint64_t)>;

/// The bytes of word `index` in data that holds the pattern from its first word on; the last may be cut short.
template <typename Byte>
std::span<Byte> word_bytes(std::span<Byte> data, std::size_t index) {
  const std::size_t at = index * sizeof(Word);
  return data.subspan(at, std::min(sizeof(Word), data.size() - at));
}

std::size_t words_of(std::size_t bytes) { return (bytes + sizeof(Word) - 1) / sizeof(Word); }

}  // namespace

void fill_host_pattern(std::span<std::byte> data, std::uint64_t seed, std::uint64_t first_word) {
#pragma omp parallel for
  for (std::size_t index = 0; index < words_of(data.size()); ++index) {
    const std::uint64_t bits = random_bits(seed, first_word + index);
    const auto bytes = word_bytes(data, index);
    std::memcpy(bytes.data(), &bits, bytes.size());
  }
}

void fill_host_bytes(std::span<std::byte> data, std::byte value) {
  constexpr std::size_t kPart = std::size_t{1} << 20;
#pragma omp parallel for
  for (std::size_t at = 0; at < data.size(); at += kPart) {
    const auto part = data.subspan(at, std::min(kPart, data.size() - at));
    std::memset(part.data(), static_cast<int>(value), part.size());
  }
}

std::size_t wrong_host_bytes(std::span<const std::byte> data, std::uint64_t seed, std::uint64_t first_word) {
  std::size_t wrong = 0;
#pragma omp parallel for reduction(+ : wrong)
  for (std::size_t index = 0; index < words_of(data.size()); ++index) {
    const std::uint64_t bits = random_bits(seed, first_word + index);
    const auto bytes = word_bytes(data, index);
    if (std::memcmp(bytes.data(), &bits, bytes.size()) == 0) continue;
    const auto expected = std::bit_cast<Word>(bits);
    for (std::size_t i = 0; i < bytes.size(); ++i) wrong += bytes[i] != expected[i] ? 1 : 0;
  }
  return wrong;
}

}  // namespace gpulift
