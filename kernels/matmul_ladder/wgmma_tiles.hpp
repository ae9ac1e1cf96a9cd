#pragma once
// Which tiles of a result the blocks of a cluster have in the rungs of wgmma.cu, for host and device.

#include <algorithm>
#include <utility>

#include "kernels/matmul_ladder/layout.hpp"

namespace gpulift::ladder {

inline constexpr int kTileRows = 128;  // of a block
inline constexpr int kTileColumns = 256;

/// What part of a result the tiles of a cluster's blocks make together.
enum class ClusterShape {
  kSingle,  // 128 rows by 256 columns
  kSquare,  // 256 by 256
  kWide,    // 128 by 512
  kTall,    // 512 by 128
};

/// Whether transposed(result) = right x transposed(left) is what is multiplied. All else is said of that product then.
__host__ __device__ constexpr bool transposed(ClusterShape shape) { return shape == ClusterShape::kTall; }

/// Blocks above one another: they have the same columns, and share a tile of `right`.
__host__ __device__ constexpr int above(ClusterShape shape) { return shape == ClusterShape::kSquare ? 2 : 1; }

/// Blocks beside one another: they have the same rows, and share a tile of `left`.
__host__ __device__ constexpr int beside(ClusterShape shape) {
  return shape == ClusterShape::kWide || shape == ClusterShape::kTall ? 2 : 1;
}

__host__ __device__ constexpr int blocks(ClusterShape shape) { return above(shape) * beside(shape); }

/// The tiles of clusters: 2048 rows of them are worked on before the next column.
constexpr TileOrder cluster_tiles(ClusterShape shape, int rows, int columns) {
  constexpr int kGroupRows = 2048;
  if (transposed(shape)) std::swap(rows, columns);
  const int height = above(shape) * kTileRows;
  return {divide_up(rows, height), divide_up(columns, beside(shape) * kTileColumns), kGroupRows / height};
}

struct Corner {
  int row;
  int column;
};

/// Where the tile of the cluster's block `rank` begins.
__host__ __device__ constexpr Corner corner_of(ClusterShape shape, const TilePlace& place, int rank) {
  return {(place.row * above(shape) + rank / beside(shape)) * kTileRows,
          (place.column * beside(shape) + rank % beside(shape)) * kTileColumns};
}

/// How many tiles one after another the busiest cluster has.
constexpr int rounds(ClusterShape shape, int rows, int columns, int multiprocessors) {
  return divide_up(cluster_tiles(shape, rows, columns).count(), std::max(multiprocessors / blocks(shape), 1));
}

/// The shape that needs the fewest rounds. Of equals the square, whose blocks read the least: 32 KiB a step, not 40.
constexpr ClusterShape shape_of_fewest_rounds(int rows, int columns, int multiprocessors) {
  ClusterShape best = ClusterShape::kSquare;
  for (ClusterShape shape : {ClusterShape::kWide, ClusterShape::kTall}) {
    if (rounds(shape, rows, columns, multiprocessors) < rounds(best, rows, columns, multiprocessors)) best = shape;
  }
  return best;
}

}  // namespace gpulift::ladder
