#include <algorithm>
#include <cstdint>
#include <cuda/ptx>

#include "core/cuda/check.hpp"
#include "kernels/matmul_ladder/layout.hpp"
#include "kernels/matmul_ladder/ptx.hpp"
#include "kernels/matmul_ladder/rungs.hpp"
#include "kernels/matmul_ladder/tensor_map.hpp"
#include "kernels/packed.hpp"

namespace gpulift {
namespace {

// A block's tile is 128 x 256: two groups of four warps multiply 64 rows each, and one thread of a third group keeps a
// ring of tiles filled by TMA. A step of 64 elements of depth takes the Tensor Cores 1024 cycles and 48 KiB.
constexpr int kTileRows = 128;
constexpr int kTileColumns = 256;
constexpr int kDepth = 64;
constexpr int kStages = 4;   // tiles in flight
constexpr int kBoxes = 2;    // of each group, for the result: what fits into 227 KiB
constexpr int kGroup = 128;  // threads of four warps
constexpr int kMultiplying = 2;
constexpr int kThreads = kGroup * (kMultiplying + 1);
constexpr int kBoxSide = 64;  // the result leaves in boxes of 64 x 64
constexpr int kBoxBytes = kBoxSide * ladder::kRowBytes;
constexpr int kAlignment = 1024;  // of swizzled tiles
static_assert(kTileRows == kMultiplying * kBoxSide);

struct Stage {
  unsigned char left[kTileRows * ladder::kRowBytes];
  unsigned char right[kTileColumns * ladder::kRowBytes];
};

struct Shared {
  Stage stages[kStages];
  unsigned char boxes[kMultiplying][kBoxes][kBoxBytes];
  std::uint64_t full[kStages];   // barriers: a stage's tiles have come
  std::uint64_t empty[kStages];  // all that read them are done
};
static_assert(sizeof(Stage) % kAlignment == 0);
constexpr int kSharedBytes = sizeof(Shared) + kAlignment;

/// Passed by value: TMA reads the maps where the launch put them.
struct Maps {
  CUtensorMap left;
  CUtensorMap right;
  CUtensorMap result;
};

/// Until the phase of this parity is over.
[[maybe_unused]] __device__ void wait(std::uint64_t* barrier, unsigned parity) {
  while (!cuda::ptx::mbarrier_try_wait_parity(barrier, parity)) {
  }
}

/// All threads of the cluster: what each wrote before, all see after.
[[maybe_unused]] __device__ void synchronise_cluster() {
  cuda::ptx::barrier_cluster_arrive(cuda::ptx::sem_release);
  cuda::ptx::barrier_cluster_wait(cuda::ptx::sem_acquire);
}

/// Calls work(first row, first column) for each of this block's tiles. `order` counts the tiles of clusters, whose
/// blocks are above one another.
template <int kBlocks, typename Work>
__device__ void for_each_tile(const ladder::TileOrder& order, int rank, Work work) {
  const int clusters = static_cast<int>(gridDim.x) / kBlocks;
  for (int tile = static_cast<int>(blockIdx.x) / kBlocks; tile < order.count(); tile += clusters) {
    const ladder::TilePlace place = order.at(tile);
    work((place.row * kBlocks + rank) * kTileRows, place.column * kTileColumns);
  }
}

/// Begins to load the tile of `right` that the blocks have in common: this block's share, into all of them. Each then
/// gets the whole tile, and counts its bytes at its own barrier.
template <int kBlocks>
__device__ void load_share(unsigned char (&tile)[kTileColumns * ladder::kRowBytes], const CUtensorMap& map, int from,
                           int column, int rank, std::uint64_t* barrier) {
  using namespace cuda::ptx;
  if constexpr (kBlocks == 1) {
    cp_async_bulk_tensor(space_cluster, space_global, tile, &map, {from, column}, barrier);
  } else {
    constexpr int kShare = kTileColumns / kBlocks;
    constexpr std::uint16_t kAllBlocks = (1 << kBlocks) - 1;
    cp_async_bulk_tensor(space_cluster, space_global, tile + rank * kShare * ladder::kRowBytes, &map,
                         {from, column + rank * kShare}, barrier, kAllBlocks);
  }
}

/// One thread: waits until all blocks that get a tile have done with the one before it in the ring.
template <int kBlocks>
__device__ void load_tiles(const Maps& maps, const ladder::TileOrder& order, int steps, Shared& shared, int rank) {
  ladder::Ring<kStages> ring;
  for_each_tile<kBlocks>(order, rank, [&](int row, int column) {
    for (int step = 0; step < steps; ++step) {
      using namespace cuda::ptx;
      Stage& stage = shared.stages[ring.stage];
      std::uint64_t* full = &shared.full[ring.stage];
      wait(&shared.empty[ring.stage], ring.phase ^ 1);  // at once in the first round
      mbarrier_arrive_expect_tx(sem_release, scope_cta, space_shared, full, sizeof(Stage));
      cp_async_bulk_tensor(space_cluster, space_global, stage.left, &maps.left, {step * kDepth, row}, full);
      load_share<kBlocks>(stage.right, maps.right, step * kDepth, column, rank, full);
      ring.advance();
    }
  });
}

/// Tells all blocks whose loads write to this stage that this warp has done with it.
template <int kBlocks>
__device__ void release(const std::uint64_t* empty) {
  const unsigned lane = threadIdx.x % 32;
  if (lane < kBlocks) ptx::arrive_at(empty, lane);
  __syncwarp();
}

/// The sums of this group's 64 rows over the whole depth.
template <int kBlocks>
__device__ void multiply_tile(float (&sums)[128], ladder::Ring<kStages>& ring, int steps, Shared& shared, int group) {
  int before = 0;
  for (int step = 0; step < steps; ++step) {
    wait(&shared.full[ring.stage], ring.phase);
    const std::uint64_t left = ptx::operand(shared.stages[ring.stage].left + group * kBoxBytes);
    const std::uint64_t right = ptx::operand(shared.stages[ring.stage].right);
    ptx::begin_products();
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k) ptx::multiply_64x256(sums, left + 2 * k, right + 2 * k, step > 0 || k > 0);
    ptx::commit_products();
    // This step's products go on while those of the step before are known to be done.
    ptx::wait_for_products<1>();
    if (step > 0) release<kBlocks>(&shared.empty[before]);
    before = ring.stage;
    ring.advance();
  }
  ptx::wait_for_products<0>();
  ptx::hold(sums);
  release<kBlocks>(&shared.empty[before]);
}

/// This group's 64 x 256 results, in boxes that TMA stores while the next is made.
[[maybe_unused]] __device__ void store_tile(const float (&sums)[128], const CUtensorMap& map, Shared& shared, int group,
                                            int row, int column) {
  using namespace cuda::ptx;
  constexpr int kPairs = kBoxSide / 16;  // of 8 columns, which are four sums of a thread
  const int thread = static_cast<int>(threadIdx.x) % kGroup;
  const int warp = thread / 32;
#pragma unroll
  for (int box = 0; box < kTileColumns / kBoxSide; ++box) {
    unsigned char* target = shared.boxes[group][box % kBoxes];
    if (thread == 0) cp_async_bulk_wait_group_read(n32_t<kBoxes - 1>{});
    __syncwarp();
    ptx::synchronise(1 + group, kGroup);
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      const ladder::Piece piece = ladder::piece_of_sums(warp, pair, thread % 32);
      Pack values;
#pragma unroll
      for (int i = 0; i < kPack; ++i) values.at[i] = sums[(box * kPairs + pair) * kPack + i];
      ptx::store_matrices(ptx::shared_address(target) + ladder::swizzled(piece.row, piece.piece), pack(values));
    }
    fence_proxy_async(space_shared);  // lets TMA see what this thread wrote
    ptx::synchronise(1 + group, kGroup);
    if (thread == 0) {
      cp_async_bulk_tensor(space_global, space_shared, &map, {column + box * kBoxSide, row + group * kBoxSide}, target);
      cp_async_bulk_commit_group();
    }
    __syncwarp();
  }
}

template <int kBlocks>
__device__ void multiply_all(const Maps& maps, const ladder::TileOrder& order, int steps, Shared& shared) {
  using namespace cuda::ptx;
  const auto rank = static_cast<int>(get_sreg_cluster_ctarank());
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      mbarrier_init(&shared.full[stage], 1);
      mbarrier_init(&shared.empty[stage], kBlocks * kMultiplying * kGroup / 32);  // all their warps
    }
    fence_mbarrier_init(sem_release, scope_cluster);  // lets other blocks and TMA see them
  }
  __syncthreads();
  synchronise_cluster();  // no block may reach for another's barriers before they are there, or after it has left

  // 168 registers a thread at first, as many as 384 threads can have. The loading group gives most of its own away.
  constexpr int kLoadingRegisters = 40;
  constexpr int kMultiplyingRegisters = 232;
  const int group = static_cast<int>(threadIdx.x) / kGroup;
  if (group == kMultiplying) {
    ptx::give_registers<kLoadingRegisters>();
    if (threadIdx.x % kGroup == 0) load_tiles<kBlocks>(maps, order, steps, shared, rank);
    __syncwarp();
    synchronise_cluster();
  } else {
    ptx::take_registers<kMultiplyingRegisters>();
    ladder::Ring<kStages> ring;
    for_each_tile<kBlocks>(order, rank, [&](int row, int column) {
      float sums[128];
      multiply_tile<kBlocks>(sums, ring, steps, shared, group);
      store_tile(sums, maps.result, shared, group, row, column);
    });
    if (threadIdx.x % kGroup == 0) cp_async_bulk_wait_group_read(n32_t<0>{});
    __syncwarp();
    synchronise_cluster();
  }
}

template <int kBlocks>
__global__ __launch_bounds__(kThreads, 1) void wgmma_kernel(const __grid_constant__ Maps maps, ladder::TileOrder order,
                                                            int steps) {
  if constexpr (ptx::kHasWgmma) {
    extern __shared__ unsigned char memory[];
    unsigned char* aligned = memory + (kAlignment - ptx::shared_address(memory) % kAlignment) % kAlignment;
    multiply_all<kBlocks>(maps, order, steps, *reinterpret_cast<Shared*>(aligned));
  }
}

int multiprocessors() {
  int device = 0;
  int count = 0;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

/// As few as need no more rounds: they stay in step, and share the cache and the power.
int clusters_that_persist(int tiles, int most) { return ladder::divide_up(tiles, ladder::divide_up(tiles, most)); }

template <int kBlocks, bool kPersists>
struct Wgmma {
  static void multiply(const LadderProduct& product, cudaStream_t stream) {
    constexpr int kClusterRows = kBlocks * kTileRows;
    constexpr int kRowsAtOnce = 2048;  // are worked on before the next column
    const auto rows = static_cast<int>(product.rows);
    const auto columns = static_cast<int>(product.columns);
    const int steps = ladder::divide_up(static_cast<int>(product.depth), kDepth);
    const Maps maps{make_tensor_map(product.left, product.rows, product.depth, kTileRows),
                    make_tensor_map(product.right, product.columns, product.depth, kTileColumns / kBlocks),
                    make_tensor_map(product.result, product.rows, product.columns, kBoxSide)};
    const ladder::TileOrder order{ladder::divide_up(rows, kClusterRows), ladder::divide_up(columns, kTileColumns),
                                  kRowsAtOnce / kClusterRows};
    const int most = std::max(multiprocessors() / kBlocks, 1);
    const int clusters = kPersists ? clusters_that_persist(order.count(), most) : order.count();

    const auto kernel = wgmma_kernel<kBlocks>;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
    cudaLaunchAttribute cluster{};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {kBlocks, 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(clusters * kBlocks));
    config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = kSharedBytes;
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = 1;
    check(cudaLaunchKernelEx(&config, kernel, maps, order, steps));
  }
  static RungResources resources() { return resources_of(wgmma_kernel<kBlocks>, kSharedBytes); }
  static constexpr RungKernel kRung{multiply, resources};
};

}  // namespace

// Adds wgmma, which reads its operands from shared memory itself, and TMA, by which one thread loads whole tiles: no
// warp that multiplies computes an address, and Tensor Cores run at their full rate while the ring is full. The L2
// cache fills it, 48 KiB a step. An H200 at 4096 cubed: 756 TFLOP/s, 2.0 times as fast as mma, for which 8.9 TB/s come.
RungKernel wgmma_tma_rung() { return Wgmma<1, false>::kRung; }

// Adds clusters of two blocks, one above the other: each loads one half of the tile of `right`, into both. A block
// reads 32 KiB a step in place of 48. An H200 at 4096 cubed: 755 TFLOP/s, as fast, since the L2 held nothing up. At
// 4001 x 4104 x 4008, whose rows begin anywhere in a line, it does: 1.3 times as fast.
RungKernel wgmma_multicast_rung() { return Wgmma<2, false>::kRung; }

// Adds blocks that persist: a tile's results are stored while the next one's operands are loaded and multiplied, where
// before each tile began with an empty ring and ended with a store. An H200 at 4096 cubed: 785 TFLOP/s, 1.04 times as
// fast. 4001 x 4104 has 272 tiles of clusters, which 55 of the 66 clusters work on in 5 rounds of equal length.
RungKernel wgmma_rung() { return Wgmma<2, true>::kRung; }

}  // namespace gpulift
