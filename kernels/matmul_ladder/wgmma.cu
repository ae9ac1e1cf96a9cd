#include <algorithm>

#include "core/cuda/check.hpp"
#include "kernels/matmul_ladder/layout.hpp"
#include "kernels/matmul_ladder/ptx.hpp"
#include "kernels/matmul_ladder/rungs.hpp"
#include "kernels/matmul_ladder/tensor_map.hpp"
#include "kernels/packed.hpp"

namespace gpulift {
namespace {

// A block's tile is 128 x 256: two groups of four warps multiply 64 rows each, and one thread of a third group keeps a
// ring of tiles filled by TMA. A step of 64 elements of depth takes the Tensor Cores 1024 cycles and 48 KiB, of which
// two blocks in a cluster, one above the other, load the 32 KiB of `right` only once.
constexpr int kTileRows = 128;
constexpr int kTileColumns = 256;
constexpr int kDepth = 64;
constexpr int kStages = 4;     // tiles in flight
constexpr int kCluster = 2;    // blocks that share the tile of `right`
constexpr int kGroupRows = 8;  // clusters above one another that are worked on before the next column
constexpr int kGroup = 128;    // threads of four warps
constexpr int kMultiplying = 2;
constexpr int kThreads = kGroup * (kMultiplying + 1);
constexpr int kGroupTileRows = kTileRows / kMultiplying;
constexpr int kLeftBytes = kTileRows * ladder::kRowBytes;
constexpr int kRightBytes = kTileColumns * ladder::kRowBytes;
constexpr int kStageBytes = kLeftBytes + kRightBytes;
constexpr int kBoxBytes = kGroupTileRows * ladder::kRowBytes;  // of the result, which leaves in boxes of 64 x 64
constexpr int kAlignment = 1024;                               // of swizzled tiles

/// Offsets in shared memory.
struct Layout {
  static constexpr int kBoxes = 2;  // of each group: what fits into 227 KiB
  static constexpr int kResult = kStages * kStageBytes;
  static constexpr int kFull = kResult + kMultiplying * kBoxes * kBoxBytes;
  static constexpr int kEmpty = kFull + kStages * 8;
  static constexpr int kBytes = kEmpty + kStages * 8 + kAlignment;

  static __device__ unsigned left(unsigned base, int stage) { return base + stage * kStageBytes; }
  static __device__ unsigned right(unsigned base, int stage) { return left(base, stage) + kLeftBytes; }
  static __device__ unsigned box(unsigned base, int group, int box) {
    return base + kResult + (group * kBoxes + box % kBoxes) * kBoxBytes;
  }
  static __device__ unsigned full(unsigned base, int stage) { return base + kFull + stage * 8; }
  static __device__ unsigned empty(unsigned base, int stage) { return base + kEmpty + stage * 8; }
};

/// Passed by value: TMA reads the maps where the launch put them.
struct Maps {
  CUtensorMap left;
  CUtensorMap right;
  CUtensorMap result;
};

/// Calls work(first row, first column) for each of this block's tiles. `order` counts the tiles of clusters.
template <typename Work>
__device__ void for_each_tile(const ladder::TileOrder& order, int rank, Work work) {
  const int clusters = static_cast<int>(gridDim.x) / kCluster;
  for (int tile = static_cast<int>(blockIdx.x) / kCluster; tile < order.count(); tile += clusters) {
    const ladder::TilePlace place = order.at(tile);
    work((place.row * kCluster + rank) * kTileRows, place.column * kTileColumns);
  }
}

/// One thread: waits until all blocks that get a tile have done with the one before it in the ring.
__device__ void load_tiles(const Maps& maps, const ladder::TileOrder& order, int steps, unsigned base, int rank) {
  constexpr int kShareRows = kTileColumns / kCluster;
  constexpr std::uint16_t kAllBlocks = (1 << kCluster) - 1;
  ladder::Ring<kStages> ring;
  for_each_tile(order, rank, [&](int row, int column) {
    for (int step = 0; step < steps; ++step) {
      const unsigned full = Layout::full(base, ring.stage);
      ptx::wait(Layout::empty(base, ring.stage), ring.phase ^ 1);  // at once in the first round
      ptx::arrive_and_expect(full, kStageBytes);
      ptx::load_box(Layout::left(base, ring.stage), maps.left, full, step * kDepth, row);
      const unsigned share = Layout::right(base, ring.stage) + rank * kShareRows * ladder::kRowBytes;
      ptx::load_box(share, maps.right, full, step * kDepth, column + rank * kShareRows, kAllBlocks);
      ring.advance();
    }
  });
}

/// Tells all blocks whose loads write to this stage that this warp has done with it.
__device__ void release(unsigned base, int stage) {
  const unsigned lane = threadIdx.x % 32;
  if (lane < kCluster) ptx::arrive_at(Layout::empty(base, stage), lane);
  __syncwarp();
}

/// The sums of this group's 64 rows over the whole depth.
__device__ void multiply_tile(float (&sums)[128], ladder::Ring<kStages>& ring, int steps, unsigned base, int group) {
  int before = 0;
  for (int step = 0; step < steps; ++step) {
    ptx::wait(Layout::full(base, ring.stage), ring.phase);
    const std::uint64_t left = ptx::operand(Layout::left(base, ring.stage) + group * kBoxBytes);
    const std::uint64_t right = ptx::operand(Layout::right(base, ring.stage));
    ptx::begin_products();
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k) ptx::multiply_64x256(sums, left + 2 * k, right + 2 * k, step > 0 || k > 0);
    ptx::commit_products();
    // This step's products go on while those of the step before are known to be done.
    ptx::wait_for_products<1>();
    if (step > 0) release(base, before);
    before = ring.stage;
    ring.advance();
  }
  ptx::wait_for_products<0>();
  ptx::hold(sums);
  release(base, before);
}

/// This group's 64 x 256 results, in boxes that TMA stores while the next is made.
__device__ void store_tile(const float (&sums)[128], const CUtensorMap& map, unsigned base, int group, int row,
                           int column) {
  constexpr int kBoxColumns = 64;
  constexpr int kPairs = kBoxColumns / 16;  // of 8 columns, which are four sums of a thread
  const int thread = static_cast<int>(threadIdx.x) % kGroup;
  const ladder::Piece piece = ladder::piece_by_rows(thread % 32);
  const int row_inside = thread / 32 * 16 + piece.row;
#pragma unroll
  for (int box = 0; box < kTileColumns / kBoxColumns; ++box) {
    const unsigned target = Layout::box(base, group, box);
    if (thread == 0) ptx::wait_until_read<Layout::kBoxes - 1>();
    __syncwarp();
    ptx::synchronise(1 + group, kGroup);
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      const float* values = &sums[(box * kPairs + pair) * 8];
      const unsigned words[4] = {pack(values[0], values[1]), pack(values[2], values[3]), pack(values[4], values[5]),
                                 pack(values[6], values[7])};
      ptx::store_matrices(target + ladder::swizzled(row_inside, 2 * pair + piece.piece), words);
    }
    ptx::publish_stores();
    ptx::synchronise(1 + group, kGroup);
    if (thread == 0) ptx::store_box(map, target, column + box * kBoxColumns, row + group * kGroupTileRows);
    __syncwarp();
  }
}

__device__ void multiply_all(const Maps& maps, const ladder::TileOrder& order, int steps, unsigned base) {
  const auto rank = static_cast<int>(ptx::rank_in_cluster());
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      ptx::init_barrier(Layout::full(base, stage), 1);
      ptx::init_barrier(Layout::empty(base, stage), kCluster * kMultiplying * kGroup / 32);  // all their warps
    }
    ptx::publish_barriers();
  }
  __syncthreads();
  ptx::synchronise_cluster();  // no block may reach for another's barriers before they are there, or after it has left

  // 168 registers a thread at first, as many as 384 threads can have. The loading group gives most of its own away.
  constexpr int kLoadingRegisters = 40;
  constexpr int kMultiplyingRegisters = 232;
  const int group = static_cast<int>(threadIdx.x) / kGroup;
  if (group == kMultiplying) {
    ptx::give_registers<kLoadingRegisters>();
    if (threadIdx.x % kGroup == 0) load_tiles(maps, order, steps, base, rank);
    __syncwarp();
    ptx::synchronise_cluster();
  } else {
    ptx::take_registers<kMultiplyingRegisters>();
    ladder::Ring<kStages> ring;
    for_each_tile(order, rank, [&](int row, int column) {
      float sums[128];
      multiply_tile(sums, ring, steps, base, group);
      store_tile(sums, maps.result, base, group, row, column);
    });
    if (threadIdx.x % kGroup == 0) ptx::wait_until_read<0>();
    __syncwarp();
    ptx::synchronise_cluster();
  }
}

__global__ __launch_bounds__(kThreads, 1) void wgmma_kernel(const __grid_constant__ Maps maps, ladder::TileOrder order,
                                                            int steps) {
  if constexpr (ptx::kHasWgmma) {
    extern __shared__ unsigned char shared[];
    const unsigned base = (ptx::shared_address(shared) + kAlignment - 1) / kAlignment * kAlignment;
    multiply_all(maps, order, steps, base);
  }
}

int multiprocessors() {
  int device = 0;
  int count = 0;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

}  // namespace

void multiply_wgmma(const LadderProduct& product, cudaStream_t stream) {
  const int rows = static_cast<int>(product.rows);
  const int columns = static_cast<int>(product.columns);
  const int depth = static_cast<int>(product.depth);
  const Maps maps{make_tensor_map(product.left, rows, depth, kTileRows),
                  make_tensor_map(product.right, columns, depth, kTileColumns / kCluster),
                  make_tensor_map(product.result, rows, columns, kGroupTileRows)};
  const ladder::TileOrder order{ladder::divide_up(rows, kCluster * kTileRows), ladder::divide_up(columns, kTileColumns),
                                kGroupRows};
  // As few clusters as need no more rounds: they stay in step, and share the cache and the power.
  const int most = std::max(multiprocessors() / kCluster, 1);
  const int rounds = ladder::divide_up(order.count(), most);
  const int clusters = ladder::divide_up(order.count(), rounds);

  check(cudaFuncSetAttribute(wgmma_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Layout::kBytes));
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {kCluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(clusters * kCluster));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = Layout::kBytes;
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, wgmma_kernel, maps, order, ladder::divide_up(depth, kDepth)));
}

RungResources wgmma_resources() { return resources_of(wgmma_kernel, Layout::kBytes); }

}  // namespace gpulift
