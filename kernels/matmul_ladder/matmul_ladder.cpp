#include "kernels/matmul_ladder/matmul_ladder.hpp"

#include <limits>
#include <stdexcept>
#include <string_view>

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

/// What a rung multiplies with.
enum class Units { kFp32, kMma, kWgmma };

struct Rung {
  std::string_view name;
  Units units;
  RungKernel kernel;
};

Rung find(MatmulRung rung) {
  switch (rung) {
    case MatmulRung::kNaive:
      return {"naive", Units::kFp32, naive_rung()};
    case MatmulRung::kTiled:
      return {"tiled", Units::kFp32, tiled_rung()};
    case MatmulRung::kMmaUnswizzled:
      return {"mma_unswizzled", Units::kMma, mma_unswizzled_rung()};
    case MatmulRung::kMmaSwizzled:
      return {"mma_swizzled", Units::kMma, mma_swizzled_rung()};
    case MatmulRung::kMma:
      return {"mma", Units::kMma, mma_rung()};
    case MatmulRung::kWgmmaTma:
      return {"wgmma_tma", Units::kWgmma, wgmma_tma_rung()};
    case MatmulRung::kWgmmaMulticast:
      return {"wgmma_multicast", Units::kWgmma, wgmma_multicast_rung()};
    case MatmulRung::kWgmma:
      return {"wgmma", Units::kWgmma, wgmma_rung()};
  }
  throw std::invalid_argument("no such rung");
}

}  // namespace

std::string matmul_rung_name(MatmulRung rung) { return std::string(find(rung).name); }

std::string why_rung_unsupported(MatmulRung rung, int architecture) {
  const Units units = find(rung).units;
  if (units == Units::kMma && architecture < kAmpere) {
    return "mma.sync with bf16 and cp.async need compute capability 8.0 or later; this device has " +
           dotted(architecture);
  }
  if (units == Units::kWgmma && architecture != kHopper) {
    return "wgmma needs compute capability 9.0, neither less nor more; this device has " + dotted(architecture);
  }
  return {};
}

RungResources rung_resources(MatmulRung rung) {
  // A thread of wgmma holds 128 sums: with fewer registers this is the empty kernel of a build for another
  // architecture.
  constexpr int kLeastRegisters = 128;
  const Rung found = find(rung);
  const RungResources resources = found.kernel.resources();
  if (found.units == Units::kWgmma && resources.registers < kLeastRegisters) {
    throw NoDeviceCode("this build has no wgmma: it is not one for 90a");
  }
  return resources;
}

void multiply(MatmulRung rung, const LadderProduct& product, cudaStream_t stream) {
  refuse_unless(countable(product.rows) && countable(product.columns) && countable(product.depth),
                "a side must be between 1 and 1048560");
  refuse_unless(product.columns % 8 == 0 && product.depth % 8 == 0, "columns and depth must be multiples of 8");
  refuse_unless(aligned(product.left) && aligned(product.right) && aligned(product.result),
                "matrices must be aligned to 16 bytes");
  find(rung).kernel.multiply(product, stream);
}

}  // namespace gpulift
