#include "core/cuda/check.hpp"
#include "kernels/matmul_ladder/layout.hpp"
#include "kernels/matmul_ladder/ptx.hpp"
#include "kernels/matmul_ladder/rungs.hpp"

namespace gpulift {
namespace {

// What is said to be maybe unused is so where the kernel is empty.

constexpr int kTile = 128;                   // rows and columns of a block's part of the result
[[maybe_unused]] constexpr int kDepth = 64;  // of the operands in shared memory: a row of 128 bytes
constexpr int kThreads = 128;                // four warps, each of which has a quarter of the tile: 64 x 64
[[maybe_unused]] constexpr int kQuarter = 64;
constexpr int kTileBytes = kTile * ladder::kRowBytes;
constexpr int kGroupRows = 16;

/// How pieces of a row lie in shared memory.
enum class Rows { kPlain, kSwizzled };

template <Rows kRows>
__device__ constexpr int offset(int row, int piece) {
  return kRows == Rows::kSwizzled ? ladder::swizzled(row, piece)
                                  : row * ladder::kRowBytes + piece * ladder::kPieceBytes;
}

/// Begins to copy rows from `first` on of a matrix of `rows` rows; zeros where there are none.
template <Rows kRows>
__device__ void copy_tile(unsigned target, const __nv_bfloat16* matrix, std::int64_t rows, std::int64_t depth,
                          std::int64_t first, std::int64_t from) {
  constexpr int kPieces = ladder::kRowBytes / ladder::kPieceBytes;
  const int piece = static_cast<int>(threadIdx.x) % kPieces;
  const std::int64_t k = from + piece * 8;
#pragma unroll
  for (int i = 0; i < kTile * kPieces / kThreads; ++i) {
    const int row = static_cast<int>(threadIdx.x) / kPieces + i * (kThreads / kPieces);
    const bool there = first + row < rows && k < depth;
    const __nv_bfloat16* source = there ? matrix + (first + row) * depth + k : matrix;
    ptx::copy_async(target + offset<kRows>(row, piece), source, there);
  }
}

/// A warp's quarter of the tile, 16 elements of depth at a time.
template <Rows kRows>
__device__ void multiply_tiles(unsigned left, unsigned right, float (&sums)[4][8][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const ladder::Piece by_rows = ladder::piece_by_rows(lane);
  const ladder::Piece by_halves = ladder::piece_by_halves(lane);
#pragma unroll
  for (int k = 0; k < kDepth / 16; ++k) {
    unsigned a[4][4];
    unsigned b[4][4];  // each the operands of two products of 8 columns
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      ptx::load_matrices(left + offset<kRows>(i * 16 + by_rows.row, 2 * k + by_rows.piece), a[i]);
      ptx::load_matrices(right + offset<kRows>(i * 16 + by_halves.row, 2 * k + by_halves.piece), b[i]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 8; ++j) ptx::mma(sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
    }
  }
}

/// Pairs of neighbours, each lane its own.
[[maybe_unused]] __device__ void store_quarter(const LadderProduct& product, std::int64_t first_row,
                                               std::int64_t first_column, const float (&sums)[4][8][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t row = first_row + i * 16 + half * 8 + lane / 4;
      if (row >= product.rows) continue;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const std::int64_t column = first_column + j * 8 + lane % 4 * 2;
        if (column >= product.columns) continue;
        *reinterpret_cast<__nv_bfloat162*>(product.result + row * product.columns + column) =
            __floats2bfloat162_rn(sums[i][j][half * 2], sums[i][j][half * 2 + 1]);
      }
    }
  }
}

/// The block's tile over the whole depth.
template <Rows kRows, int kStages>
__device__ void multiply_block(const LadderProduct& product, const ladder::TilePlace& place, unsigned base) {
  const std::int64_t first_row = std::int64_t{place.row} * kTile;
  const std::int64_t first_column = std::int64_t{place.column} * kTile;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int row_at = warp / 2 * kQuarter;
  const int column_at = warp % 2 * kQuarter;
  const int steps = static_cast<int>((product.depth + kDepth - 1) / kDepth);
  const auto left_at = [&](int step) { return base + step % kStages * 2 * kTileBytes; };
  const auto right_at = [&](int step) { return left_at(step) + kTileBytes; };
  const auto copy_step = [&](int step) {
    if (step < steps) {
      const std::int64_t from = std::int64_t{step} * kDepth;
      copy_tile<kRows>(left_at(step), product.left, product.rows, product.depth, first_row, from);
      copy_tile<kRows>(right_at(step), product.right, product.columns, product.depth, first_column, from);
    }
    ptx::commit_copies();  // an empty group, too: the wait below counts groups
  };
  float sums[4][8][4] = {};
  for (int step = 0; step < kStages - 1; ++step) copy_step(step);
  for (int step = 0; step < steps; ++step) {
    if constexpr (kStages == 1) {
      __syncthreads();  // none reads the tiles of the step before, which are overwritten now
      copy_step(step);
    }
    ptx::wait_for_copies<kStages == 1 ? 0 : kStages - 2>();
    __syncthreads();  // all see this step's tiles, and none reads those of the step before
    if constexpr (kStages > 1) copy_step(step + kStages - 1);
    multiply_tiles<kRows>(left_at(step) + row_at * ladder::kRowBytes, right_at(step) + column_at * ladder::kRowBytes,
                          sums);
  }
  store_quarter(product, first_row + row_at, first_column + column_at, sums);
}

template <Rows kRows, int kStages>
__global__ __launch_bounds__(kThreads, 2) void mma_kernel(LadderProduct product, ladder::TileOrder order) {
  if constexpr (ptx::kHasMma) {
    extern __shared__ __align__(128) unsigned char shared[];
    const ladder::TilePlace place = order.at(static_cast<int>(blockIdx.x));
    multiply_block<kRows, kStages>(product, place, ptx::shared_address(shared));
  }
}

template <Rows kRows, int kStages>
struct Mma {
  static constexpr int kSharedBytes = kStages * 2 * kTileBytes;

  static void multiply(const LadderProduct& product, cudaStream_t stream) {
    const auto tiles = [](std::int64_t side) { return ladder::divide_up(static_cast<int>(side), kTile); };
    const ladder::TileOrder order{tiles(product.rows), tiles(product.columns), kGroupRows};
    const auto kernel = mma_kernel<kRows, kStages>;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
    kernel<<<static_cast<unsigned>(order.count()), kThreads, kSharedBytes, stream>>>(product, order);
    check(cudaGetLastError());
  }
  static RungResources resources() { return resources_of(mma_kernel<kRows, kStages>, kSharedBytes); }
  static constexpr RungKernel kRung{multiply, resources};
};

}  // namespace

// Adds Tensor Cores by mma.sync, fed by ldmatrix. The eight addresses of a matrix are 128 bytes apart, all in the same
// four banks: a warp's ldmatrix of four matrices takes 32 cycles, where 4 would do. A block has 32 of them for 16
// elements of depth, 1024 cycles for 128 x 128 x 16 multiplications, 256 a cycle. An H200 at 4096 cubed: 99 TFLOP/s,
// 2.4 times as fast.
RungKernel mma_unswizzled_rung() { return Mma<Rows::kPlain, 1>::kRung; }

// Adds the swizzle: the eight addresses of a matrix meet all 32 banks. ldmatrix takes 128 cycles of those 1024, and
// what remains is the wait for a step's tiles, some 1500 cycles in which the block multiplies nothing, beside 1400 in
// which it does. Two blocks share a multiprocessor, and fill some of each other's gaps. An H200: 338 TFLOP/s, 3.4 times
// as fast.
RungKernel mma_swizzled_rung() { return Mma<Rows::kSwizzled, 1>::kRung; }

// Adds a pipeline: three stages, two of which cp.async fills while the third is multiplied. A wait is gone, and a
// barrier of two. An H200: 376 TFLOP/s, 1.1 times as fast. mma.sync itself feeds Hopper's Tensor Cores to some 60 %.
RungKernel mma_rung() { return Mma<Rows::kSwizzled, 3>::kRung; }

}  // namespace gpulift
