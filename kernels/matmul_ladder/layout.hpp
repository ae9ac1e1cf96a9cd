#pragma once
// Where things lie, for host and device: which lane's data goes where, and which tile is whose.

#include <cuda_runtime_api.h>  // __host__, __device__

namespace gpulift::ladder {

__host__ __device__ constexpr int divide_up(int a, int b) { return (a + b - 1) / b; }

inline constexpr int kPieceBytes = 16;  // what ldmatrix, stmatrix and cp.async move at once: 8 elements
inline constexpr int kRowBytes = 128;   // of a tile in shared memory: 64 elements, all 32 banks

/// Byte offset of a piece in a tile whose rows have 128 bytes. The pieces of a row are exchanged by its number, so that
/// one column of pieces of eight rows meets every bank once. TMA and wgmma call it the 128-byte swizzle.
__host__ __device__ constexpr int swizzled(int row, int piece) {
  return row * kRowBytes + (piece ^ (row % 8)) * kPieceBytes;
}

/// A piece of a tile: the one whose address a lane gives to ldmatrix or stmatrix.
struct Piece {
  int row;
  int piece;
};

/// 16 rows by 16 elements as the left operand of mma.m16n8k16, or as 16 columns of two accumulators: the lower rows of
/// the first half, the upper ones, then those of the second half.
__host__ __device__ constexpr Piece piece_by_rows(int lane) { return {lane % 16, lane / 16}; }

/// 16 rows by 16 elements as the right operands of two mma.m16n8k16: both halves of the lower rows, then of the upper.
__host__ __device__ constexpr Piece piece_by_halves(int lane) { return {lane % 8 + lane / 16 * 8, lane / 8 % 2}; }

/// In a box of 64 x 64 results: the piece whose address a lane gives to stmatrix for the 16 columns `pair` of the sums
/// of wgmma that warp `warp` of four has, 16 rows.
__host__ __device__ constexpr Piece piece_of_sums(int warp, int pair, int lane) {
  const Piece inside = piece_by_rows(lane);
  return {warp * 16 + inside.row, 2 * pair + inside.piece};
}

struct TilePlace {
  int row;
  int column;
  bool operator==(const TilePlace&) const = default;
};

/// The order of tiles: columns of `group_rows` tiles, so that tiles that are worked on at once form a square, more or
/// less, and share what they read from the L2 cache.
struct TileOrder {
  int rows;
  int columns;
  int group_rows;

  __host__ __device__ constexpr int count() const { return rows * columns; }
  __host__ __device__ constexpr TilePlace at(int index) const {
    const int group = index / (group_rows * columns);
    const int first_row = group * group_rows;
    const int height = rows - first_row < group_rows ? rows - first_row : group_rows;
    const int inside = index - first_row * columns;
    return {first_row + inside % height, inside / height};
  }
};

/// A place in a ring of buffers. The phase changes with each round, as that of the barriers does.
template <int kStages>
struct Ring {
  int stage = 0;
  unsigned phase = 0;

  __host__ __device__ constexpr void advance() {
    if (++stage < kStages) return;
    stage = 0;
    phase ^= 1;
  }
};

}  // namespace gpulift::ladder
