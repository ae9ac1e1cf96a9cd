#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gpulift {

/// Writes into host memory what fill_pattern() of kernels/fill.hpp writes into device memory: 64-bit word i of the
/// pattern is random_bits(seed, i), low byte first; `data` holds it from word `first_word` on.
void fill_host_pattern(std::span<std::byte> data, std::uint64_t seed, std::uint64_t first_word = 0);

/// Sets all bytes to `value`, on all cores.
void fill_host_bytes(std::span<std::byte> data, std::byte value);

/// How many of the bytes differ from that pattern.
std::size_t wrong_host_bytes(std::span<const std::byte> data, std::uint64_t seed, std::uint64_t first_word = 0);

}  // namespace gpulift
