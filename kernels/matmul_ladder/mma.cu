#include "core/cuda/check.hpp"
#include "kernels/matmul_ladder/layout.hpp"
#include "kernels/matmul_ladder/ptx.hpp"
#include "kernels/matmul_ladder/rungs.hpp"

namespace gpulift {
namespace {

// What is said to be maybe unused is so where the kernel is empty.

constexpr int kTile = 128;     // rows and columns of a block's part of the result
constexpr int kDepth = 64;     // of the operands in shared memory: a row of 128 bytes
constexpr int kThreads = 128;  // four warps, each of which has a quarter of the tile: 64 x 64
[[maybe_unused]] constexpr int kQuarter = 64;
constexpr int kStagesInShared = 3;
constexpr int kTileBytes = kTile * ladder::kRowBytes;
constexpr int kSharedBytes = kStagesInShared * 2 * kTileBytes;
constexpr int kGroupRows = 16;

/// Begins to copy rows from `first` on of a matrix of `rows` rows; zeros where there are none.
[[maybe_unused]] __device__ void copy_tile(unsigned target, const __nv_bfloat16* matrix, std::int64_t rows,
                                           std::int64_t depth, std::int64_t first, std::int64_t from) {
  constexpr int kPieces = ladder::kRowBytes / ladder::kPieceBytes;
  const int piece = static_cast<int>(threadIdx.x) % kPieces;
  const std::int64_t k = from + piece * 8;
#pragma unroll
  for (int i = 0; i < kTile * kPieces / kThreads; ++i) {
    const int row = static_cast<int>(threadIdx.x) / kPieces + i * (kThreads / kPieces);
    const bool there = first + row < rows && k < depth;
    const __nv_bfloat16* source = there ? matrix + (first + row) * depth + k : matrix;
    ptx::copy_async(target + ladder::swizzled(row, piece), source, there);
  }
}

/// A warp's quarter of the tile, 16 elements of depth at a time.
[[maybe_unused]] __device__ void multiply_tiles(unsigned left, unsigned right, float (&sums)[4][8][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const ladder::Piece by_rows = ladder::piece_by_rows(lane);
  const ladder::Piece by_halves = ladder::piece_by_halves(lane);
#pragma unroll
  for (int k = 0; k < kDepth / 16; ++k) {
    unsigned a[4][4];
    unsigned b[4][4];  // each the operands of two products of 8 columns
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      ptx::load_matrices(left + ladder::swizzled(i * 16 + by_rows.row, 2 * k + by_rows.piece), a[i]);
      ptx::load_matrices(right + ladder::swizzled(i * 16 + by_halves.row, 2 * k + by_halves.piece), b[i]);
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
template <int kStages>
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
      copy_tile(left_at(step), product.left, product.rows, product.depth, first_row, from);
      copy_tile(right_at(step), product.right, product.columns, product.depth, first_column, from);
    }
    ptx::commit_copies();  // an empty group, too: the wait below counts groups
  };
  float sums[4][8][4] = {};
  for (int step = 0; step < kStages - 1; ++step) copy_step(step);
  for (int step = 0; step < steps; ++step) {
    ptx::wait_for_copies<kStages - 2>();
    __syncthreads();  // all see this step's tiles, and none reads those of the step before, which are overwritten now
    copy_step(step + kStages - 1);
    multiply_tiles(left_at(step) + row_at * ladder::kRowBytes, right_at(step) + column_at * ladder::kRowBytes, sums);
  }
  store_quarter(product, first_row + row_at, first_column + column_at, sums);
}

template <int kStages>
__global__ __launch_bounds__(kThreads, 2) void mma_kernel(LadderProduct product, ladder::TileOrder order) {
  if constexpr (ptx::kHasMma) {
    extern __shared__ __align__(128) unsigned char shared[];
    const ladder::TilePlace place = order.at(static_cast<int>(blockIdx.x));
    multiply_block<kStages>(product, place, ptx::shared_address(shared));
  }
}

}  // namespace

void multiply_mma(const LadderProduct& product, cudaStream_t stream) {
  const auto tiles = [](std::int64_t side) { return ladder::divide_up(static_cast<int>(side), kTile); };
  const ladder::TileOrder order{tiles(product.rows), tiles(product.columns), kGroupRows};
  check(cudaFuncSetAttribute(mma_kernel<kStagesInShared>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
  mma_kernel<kStagesInShared><<<static_cast<unsigned>(order.count()), kThreads, kSharedBytes, stream>>>(product, order);
  check(cudaGetLastError());
}

RungResources mma_resources() { return resources_of(mma_kernel<kStagesInShared>, kSharedBytes); }

}  // namespace gpulift
