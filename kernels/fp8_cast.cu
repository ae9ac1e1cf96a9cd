#include <stdexcept>

#include "kernels/fp8_cast.hpp"
#include "kernels/packed.hpp"
#include "kernels/tensor_largest.cuh"

namespace gpulift {
namespace {

constexpr int kPart = 128;
constexpr int kThreads = 256;
constexpr int kRowHeld = 8;  // packs of a row in a thread's registers
constexpr int kNarrowRow = 128;
constexpr int kWideRow = 512;
constexpr float kLargest = 448;

struct alignas(kPack) Fp8Pack {
  __nv_fp8x2_storage_t pairs[kPack / 2];
};

/// 1 where all numbers are zeros.
__device__ float scale_for(float largest) { return largest > 0 ? largest / kLargest : 1.0f; }

__device__ __nv_fp8x2_storage_t pair_of(float first, float second) {
  return __nv_cvt_float2_to_fp8x2({first, second}, __NV_SATFINITE, __NV_E4M3);
}

__device__ Fp8Pack divided(const Pack& pack, float scale) {
  const float factor = 1.0f / scale;
  Fp8Pack result;
#pragma unroll
  for (int k = 0; k < kPack / 2; ++k) {
    result.pairs[k] = pair_of(pack.at[2 * k] * factor, pack.at[2 * k + 1] * factor);
  }
  return result;
}

/// Two packs for each thread: a block that read one alone would read a quarter as much again of what was found.
constexpr int kTensorUnroll = 2;

__global__ __launch_bounds__(kThreads) void cast_tensor_kernel(const uint4* from, std::int64_t packs, Fp8Pack* to,
                                                               const float* largest, float* scale_out) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * (kThreads * kTensorUnroll) + threadIdx.x;
  uint4 held[kTensorUnroll];
#pragma unroll
  for (int k = 0; k < kTensorUnroll; ++k) {
    const std::int64_t i = first + k * kThreads;
    held[k] = i < packs ? from[i] : uint4{};
  }
  const float scale = scale_for(largest_found<kThreads>(largest));
  if (first == 0) *scale_out = scale;
#pragma unroll
  for (int k = 0; k < kTensorUnroll; ++k) {
    const std::int64_t i = first + k * kThreads;
    if (i < packs) to[i] = divided(unpack(held[k]), scale);
  }
}

/// Of kernels whose threads hold what they read: several blocks, so that some read while others write.
constexpr int kHoldingThreads = 1024;  // on a multiprocessor, with 64 registers each

/// A block per row, which its threads hold. What of a row they cannot hold is read again.
template <int kRowThreads>
__global__ __launch_bounds__(kRowThreads,
                             kHoldingThreads / kRowThreads) void cast_rows_kernel(const uint4* from,
                                                                                  std::int64_t packs_per_row,
                                                                                  Fp8Pack* to, float* scales) {
  constexpr int kHeldOfRow = kRowHeld * kRowThreads;
  const uint4* const row = from + blockIdx.x * packs_per_row;
  uint4 held[kRowHeld];
#pragma unroll
  for (int k = 0; k < kRowHeld; ++k) {
    const std::int64_t i = k * kRowThreads + threadIdx.x;
    held[k] = i < packs_per_row ? row[i] : uint4{};
  }
  float own = 0;
#pragma unroll
  for (int k = 0; k < kRowHeld; ++k) own = fmaxf(own, largest_of(held[k]));
  for (std::int64_t i = kHeldOfRow + threadIdx.x; i < packs_per_row; i += kRowThreads) {
    own = fmaxf(own, largest_of(row[i]));
  }
  const float scale = scale_for(block_reduce<kRowThreads>(own, Larger{}));
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
  Fp8Pack* const out = to + blockIdx.x * packs_per_row;
#pragma unroll
  for (int k = 0; k < kRowHeld; ++k) {
    const std::int64_t i = k * kRowThreads + threadIdx.x;
    if (i < packs_per_row) out[i] = divided(unpack(held[k]), scale);
  }
  for (std::int64_t i = kHeldOfRow + threadIdx.x; i < packs_per_row; i += kRowThreads) {
    out[i] = divided(unpack(row[i]), scale);
  }
}

/// 16 threads for each 128 columns of a row. Scales of a row's parts are a whole column of scales apart.
__global__ __launch_bounds__(kThreads) void cast_vectors_kernel(const uint4* from, std::int64_t rows,
                                                                std::int64_t packs_per_row, Fp8Pack* to,
                                                                float* scales) {
  constexpr int kLanes = kPart / kPack;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const bool inside = i < rows * packs_per_row;  // whole groups of 16 are, or are not
  const uint4 held = inside ? from[i] : uint4{};
  const float scale = scale_for(warp_reduce<kLanes>(largest_of(held), Larger{}));
  if (!inside) return;
  if (i % kLanes == 0) scales[i % packs_per_row / kLanes * rows + i / packs_per_row] = scale;
  to[i] = divided(unpack(held), scale);
}

/// A block per tile; tiles of the columns are blockIdx.x, so that their scales lie side by side.
__global__ __launch_bounds__(kThreads, kHoldingThreads / kThreads) void cast_tiles_kernel(
    const uint4* from, std::int64_t packs_per_row, Fp8Pack* to, float* scales, std::int64_t scales_per_tile_row) {
  constexpr int kPacksWide = kPart / kPack;
  constexpr int kEach = kPart * kPacksWide / kThreads;
  const std::int64_t first = blockIdx.y * kPart * packs_per_row + blockIdx.x * kPacksWide;
  uint4 held[kEach];
  float own = 0;
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const int place = k * kThreads + static_cast<int>(threadIdx.x);
    held[k] = from[first + place / kPacksWide * packs_per_row + place % kPacksWide];
    own = fmaxf(own, largest_of(held[k]));
  }
  const float scale = scale_for(block_reduce<kThreads>(own, Larger{}));
  if (threadIdx.x == 0) scales[blockIdx.y * scales_per_tile_row + blockIdx.x] = scale;
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const int place = k * kThreads + static_cast<int>(threadIdx.x);
    to[first + place / kPacksWide * packs_per_row + place % kPacksWide] = divided(unpack(held[k]), scale);
  }
}

/// Where in a tile of 128 x 128 a thread has its 8 x 8 numbers. A warp has 32 rows of 64 columns: it reads 128 bytes of
/// each row, writes 64 of each row of the one copy and 32 of each row of the other, all of them whole sectors, so that
/// the transposition needs no shared memory.
struct Corner {
  static constexpr int kAcross = 8;  // lanes of a warp side by side
  static constexpr int kDown = kWarp / kAcross;
  int across;  // the lane's place in its warp
  int down;
  int row;  // within the tile
  int column;
  std::int64_t first_row;
  std::int64_t first_column;

  __device__ Corner() {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    across = lane % kAcross;
    down = lane / kAcross;
    row = (warp / 2 * kDown + down) * kPack;
    column = (warp % 2 * kAcross + across) * kPack;
    first_row = static_cast<std::int64_t>(blockIdx.y) * kPart + row;
    first_column = static_cast<std::int64_t>(blockIdx.x) * kPart + column;
  }
};

struct Square {
  uint4 rows[kPack];
};

__device__ Square load_square(const uint4* from, const Corner& corner, std::int64_t packs_per_row) {
  Square square;
#pragma unroll
  for (int r = 0; r < kPack; ++r) {
    square.rows[r] = from[(corner.first_row + r) * packs_per_row + corner.first_column / kPack];
  }
  return square;
}

/// `largest_of_rows` and `largest_of_columns` begin as zeros: of numbers that are not negative, the bits are in the
/// order of the numbers.
__global__ __launch_bounds__(kThreads) void largest_both_ways_kernel(const uint4* from, std::int64_t packs_per_row,
                                                                     unsigned* largest_of_rows,
                                                                     unsigned* largest_of_columns) {
  __shared__ unsigned of_rows[kPart];
  __shared__ unsigned of_columns[kPart];
  static_assert(kThreads == 2 * kPart);
  const int place = static_cast<int>(threadIdx.x) % kPart;
  const bool first_half = threadIdx.x < kPart;
  (first_half ? of_rows : of_columns)[place] = 0;
  const Corner corner;
  const Square square = load_square(from, corner, packs_per_row);
  __syncthreads();
  float of_column[kPack] = {};
  float of_row = 0;  // each lane has one row of its warp at last
#pragma unroll
  for (int r = 0; r < kPack; ++r) {
    const Pack numbers = unpack(square.rows[r]);
    const float largest = warp_reduce<Corner::kAcross>(largest_of(square.rows[r]), Larger{});
    if (corner.across == r) of_row = largest;
#pragma unroll
    for (int c = 0; c < kPack; ++c) of_column[c] = fmaxf(of_column[c], fabsf(numbers.at[c]));
  }
  atomicMax(&of_rows[corner.row + corner.across], __float_as_uint(of_row));
#pragma unroll
  for (int c = 0; c < kPack; ++c) {
    float largest = of_column[c];
#pragma unroll
    for (int lanes = Corner::kAcross; lanes < kWarp; lanes *= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, lanes));
    }
    if (corner.down == c % Corner::kDown) atomicMax(&of_columns[corner.column + c], __float_as_uint(largest));
  }
  __syncthreads();
  if (first_half) {
    atomicMax(&largest_of_rows[static_cast<std::int64_t>(blockIdx.y) * kPart + place], of_rows[place]);
  } else {
    atomicMax(&largest_of_columns[static_cast<std::int64_t>(blockIdx.x) * kPart + place], of_columns[place]);
  }
}

/// The scales of a square's rows and columns, when all of the matrix has one.
struct TensorScale {
  const float* largest;
  float* of_rows;
  float* of_columns;
  float scale;

  __device__ void find(const Corner& corner) {
    scale = scale_for(largest_found<kThreads>(largest));
    if (corner.first_row == 0 && corner.first_column == 0) *of_rows = *of_columns = scale;
  }
  __device__ float of_row(const Corner&, int) const { return scale; }
  __device__ float of_column(const Corner&, int) const { return scale; }
};

/// And when each row has one in the copy by rows, each column in the copy by columns.
struct RowScales {
  const float* largest_of_rows;  // which nothing writes meanwhile, as __ldg says: stores need not be waited for
  const float* largest_of_columns;
  float* of_rows;
  float* of_columns;

  __device__ void find(const Corner& corner) const {
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      if (corner.first_column == 0) of_rows[corner.first_row + k] = of_row(corner, k);
      if (corner.first_row == 0) of_columns[corner.first_column + k] = of_column(corner, k);
    }
  }
  __device__ float of_row(const Corner& corner, int k) const {
    return scale_for(__ldg(&largest_of_rows[corner.first_row + k]));
  }
  __device__ float of_column(const Corner& corner, int k) const {
    return scale_for(__ldg(&largest_of_columns[corner.first_column + k]));
  }
};

template <typename Scales>
__global__ __launch_bounds__(kThreads, 3) void cast_both_ways_kernel(const uint4* from, std::int64_t packs_per_row,
                                                                     std::int64_t packs_per_column, Scales scales,
                                                                     Fp8Pack* by_rows, Fp8Pack* by_columns) {
  const Corner corner;
  const Square square = load_square(from, corner, packs_per_row);
  scales.find(corner);
#pragma unroll
  for (int r = 0; r < kPack; ++r) {
    by_rows[(corner.first_row + r) * packs_per_row + corner.first_column / kPack] =
        divided(unpack(square.rows[r]), scales.of_row(corner, r));
  }
#pragma unroll
  for (int c = 0; c < kPack; ++c) {
    Pack down;
#pragma unroll
    for (int r = 0; r < kPack; ++r) down.at[r] = unpack(square.rows[r]).at[c];
    by_columns[(corner.first_column + c) * packs_per_column + corner.first_row / kPack] =
        divided(down, scales.of_column(corner, c));
  }
}

/// cuBLASLt wants the scales of a row of tiles to begin at multiples of 4 of them.
__host__ __device__ std::int64_t scales_per_tile_row(std::int64_t columns) { return (columns / kPart + 3) / 4 * 4; }

/// Where the scale of a number is.
__device__ std::int64_t scale_place(ScaledPart part, std::int64_t rows, std::int64_t columns, std::int64_t row,
                                    std::int64_t column) {
  if (part == ScaledPart::kTensor) return 0;
  if (part == ScaledPart::kRow) return row;
  if (part == ScaledPart::kVector) return column / kPart * rows + row;
  return row / kPart * scales_per_tile_row(columns) + column / kPart;
}

__global__ __launch_bounds__(kThreads) void restore_kernel(ScaledPart part, Fp8Copy from, std::int64_t rows,
                                                           std::int64_t columns, bool transposed, float* to) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= rows * columns) return;
  const std::int64_t row = i / columns;
  const std::int64_t column = i % columns;
  const float scale = from.scales[scale_place(part, rows, columns, row, column)];
  to[transposed ? column * rows + row : i] = static_cast<float>(from.numbers[i]) * scale;
}

/// Of kThreads, each of which takes so many packs.
unsigned blocks_for(std::int64_t packs, int each = 1) {
  return static_cast<unsigned>((packs + kThreads * each - 1) / (kThreads * each));
}

void require_sides(ScaledPart part, std::int64_t rows, std::int64_t columns) {
  const bool in_parts = part == ScaledPart::kVector || part == ScaledPart::kTile;
  if (rows <= 0 || columns <= 0 || columns % (in_parts ? kPart : kPack) != 0 ||
      (part == ScaledPart::kTile && rows % kPart != 0)) {
    throw std::invalid_argument("fp8_cast: sides that its scales do not divide");
  }
}

}  // namespace

std::size_t fp8_scales(ScaledPart part, std::int64_t rows, std::int64_t columns) {
  require_sides(part, rows, columns);
  switch (part) {
    case ScaledPart::kTensor:
      return 1 + kLargestBlocks;  // the scale, and what it is found from
    case ScaledPart::kRow:
      return static_cast<std::size_t>(rows + rows + columns);  // and the largest numbers of rows and columns
    case ScaledPart::kVector:
      return static_cast<std::size_t>(rows * (columns / kPart));
    case ScaledPart::kTile:
      return static_cast<std::size_t>(rows / kPart * scales_per_tile_row(columns));
  }
  throw std::invalid_argument("fp8_scales: no such part");
}

void cast_to_fp8(ScaledPart part, const __nv_bfloat16* from, std::int64_t rows, std::int64_t columns, __nv_fp8_e4m3* to,
                 float* scales, cudaStream_t stream) {
  require_sides(part, rows, columns);
  const auto* in = reinterpret_cast<const uint4*>(from);
  auto* out = reinterpret_cast<Fp8Pack*>(to);
  const std::int64_t packs_per_row = columns / kPack;
  const std::int64_t packs = rows * packs_per_row;
  switch (part) {
    case ScaledPart::kTensor: {
      float* const largest = scales + 1;
      find_largest(from, packs, largest, stream);
      cast_tensor_kernel<<<blocks_for(packs, kTensorUnroll), kThreads, 0, stream>>>(in, packs, out, largest, scales);
      break;
    }
    case ScaledPart::kRow: {
      const auto blocks = static_cast<unsigned>(rows);
      if (packs_per_row <= kNarrowRow * kRowHeld) {
        cast_rows_kernel<kNarrowRow><<<blocks, kNarrowRow, 0, stream>>>(in, packs_per_row, out, scales);
      } else {
        cast_rows_kernel<kWideRow><<<blocks, kWideRow, 0, stream>>>(in, packs_per_row, out, scales);
      }
      break;
    }
    case ScaledPart::kVector:
      cast_vectors_kernel<<<blocks_for(packs), kThreads, 0, stream>>>(in, rows, packs_per_row, out, scales);
      break;
    case ScaledPart::kTile: {
      const dim3 tiles(static_cast<unsigned>(columns / kPart), static_cast<unsigned>(rows / kPart));
      cast_tiles_kernel<<<tiles, kThreads, 0, stream>>>(in, packs_per_row, out, scales, scales_per_tile_row(columns));
      break;
    }
  }
  check(cudaGetLastError());
}

void cast_to_fp8_both_ways(ScaledPart part, const __nv_bfloat16* from, std::int64_t rows, std::int64_t columns,
                           const Fp8Copy& by_rows, const Fp8Copy& by_columns, cudaStream_t stream) {
  if (part != ScaledPart::kTensor && part != ScaledPart::kRow) {
    throw std::invalid_argument("fp8_cast: both ways by scales of the tensor or of rows alone");
  }
  require_sides(ScaledPart::kTile, rows, columns);
  const auto* in = reinterpret_cast<const uint4*>(from);
  auto* out_by_rows = reinterpret_cast<Fp8Pack*>(by_rows.numbers);
  auto* out_by_columns = reinterpret_cast<Fp8Pack*>(by_columns.numbers);
  const std::int64_t packs_per_row = columns / kPack;
  const std::int64_t packs_per_column = rows / kPack;
  const dim3 tiles(static_cast<unsigned>(columns / kPart), static_cast<unsigned>(rows / kPart));
  if (part == ScaledPart::kTensor) {
    float* const largest = by_rows.scales + 1;
    find_largest(from, rows * packs_per_row, largest, stream);
    const TensorScale scales{largest, by_rows.scales, by_columns.scales, 1};
    cast_both_ways_kernel<<<tiles, kThreads, 0, stream>>>(in, packs_per_row, packs_per_column, scales, out_by_rows,
                                                          out_by_columns);
  } else {
    float* const largest_of_rows = by_rows.scales + rows;
    float* const largest_of_columns = largest_of_rows + rows;
    check(cudaMemsetAsync(largest_of_rows, 0, static_cast<std::size_t>(rows + columns) * sizeof(float), stream));
    largest_both_ways_kernel<<<tiles, kThreads, 0, stream>>>(in, packs_per_row,
                                                             reinterpret_cast<unsigned*>(largest_of_rows),
                                                             reinterpret_cast<unsigned*>(largest_of_columns));
    const RowScales scales{largest_of_rows, largest_of_columns, by_rows.scales, by_columns.scales};
    cast_both_ways_kernel<<<tiles, kThreads, 0, stream>>>(in, packs_per_row, packs_per_column, scales, out_by_rows,
                                                          out_by_columns);
  }
  check(cudaGetLastError());
}

void restore_from_fp8(ScaledPart part, const Fp8Copy& from, std::int64_t rows, std::int64_t columns, bool transposed,
                      float* to, cudaStream_t stream) {
  require_sides(part, rows, columns);
  restore_kernel<<<blocks_for(rows * columns), kThreads, 0, stream>>>(part, from, rows, columns, transposed, to);
  check(cudaGetLastError());
}

}  // namespace gpulift
