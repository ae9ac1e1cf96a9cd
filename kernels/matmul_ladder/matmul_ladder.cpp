#include "kernels/matmul_ladder/matmul_ladder.hpp"

#include <limits>
#include <stdexcept>

#include "core/cuda/error.hpp"
#include "kernels/matmul_ladder/rungs.hpp"

namespace gpulift {
namespace {

constexpr int kAmpere = 80;
constexpr int kHopper = 90;

void refuse_unless(bool fits, const char* what) {
  if (!fits) throw std::invalid_argument(std::string("matmul ladder: ") + what);
}

bool aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; }

/// Blocks and coordinates are counted in 32 bits, and a grid has 65535 blocks of 16 rows at most.
bool countable(std::int64_t side) {
  return side > 0 && side <= std::int64_t{16} * std::numeric_limits<std::uint16_t>::max();
}

std::string dotted(int architecture) {
  return std::to_string(architecture / 10) + "." + std::to_string(architecture % 10);
}

}  // namespace

std::string matmul_rung_name(MatmulRung rung) {
  switch (rung) {
    case MatmulRung::kNaive:
      return "naive";
    case MatmulRung::kTiled:
      return "tiled";
    case MatmulRung::kMma:
      return "mma";
    case MatmulRung::kWgmma:
      return "wgmma";
  }
  throw std::invalid_argument("no such rung");
}

std::string why_rung_unsupported(MatmulRung rung, int architecture) {
  if (rung == MatmulRung::kMma && architecture < kAmpere) {
    return "mma.sync with bf16 and cp.async need compute capability 8.0 or later; this device has " +
           dotted(architecture);
  }
  if (rung == MatmulRung::kWgmma && architecture != kHopper) {
    return "wgmma needs compute capability 9.0, neither less nor more; this device has " + dotted(architecture);
  }
  return {};
}

RungResources rung_resources(MatmulRung rung) {
  switch (rung) {
    case MatmulRung::kNaive:
      return naive_resources();
    case MatmulRung::kTiled:
      return tiled_resources();
    case MatmulRung::kMma:
      return mma_resources();
    case MatmulRung::kWgmma: {
      // A thread holds 128 sums: with fewer registers this is the empty kernel of a build for another architecture.
      constexpr int kLeastRegisters = 128;
      const RungResources resources = wgmma_resources();
      if (resources.registers < kLeastRegisters) throw NoDeviceCode("this build has no wgmma: it is not one for 90a");
      return resources;
    }
  }
  throw std::invalid_argument("no such rung");
}

void multiply(MatmulRung rung, const LadderProduct& product, cudaStream_t stream) {
  refuse_unless(countable(product.rows) && countable(product.columns) && countable(product.depth),
                "a side must be between 1 and 1048560");
  refuse_unless(product.columns % 8 == 0 && product.depth % 8 == 0, "columns and depth must be multiples of 8");
  refuse_unless(aligned(product.left) && aligned(product.right) && aligned(product.result),
                "matrices must be aligned to 16 bytes");
  switch (rung) {
    case MatmulRung::kNaive:
      return multiply_naive(product, stream);
    case MatmulRung::kTiled:
      return multiply_tiled(product, stream);
    case MatmulRung::kMma:
      return multiply_mma(product, stream);
    case MatmulRung::kWgmma:
      return multiply_wgmma(product, stream);
  }
  throw std::invalid_argument("no such rung");
}

}  // namespace gpulift
