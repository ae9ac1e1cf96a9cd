#pragma once
// One matrix product written eight times, each rung adding one thing to the one before: BF16 operands, sums in FP32, a
// BF16 result. What a rung adds, and what that brought, stands above its `..._rung()` in its .cu file.

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace gpulift {

enum class MatmulRung {
  kNaive,           // a thread per element reads its row and its column
  kTiled,           // tiles in shared memory, 8 x 8 elements a thread in registers
  kMmaUnswizzled,   // Tensor Cores by warp: mma.sync
  kMmaSwizzled,     // tiles swizzled in shared memory
  kMma,             // a pipeline of asynchronous copies
  kWgmmaTma,        // Tensor Cores by four warps: wgmma, from tiles that another warp loads by TMA
  kWgmmaMulticast,  // clusters of two blocks, which load what they share once
  kWgmma,           // blocks that persist
};

inline constexpr std::array kMatmulRungs{MatmulRung::kNaive,          MatmulRung::kTiled, MatmulRung::kMmaUnswizzled,
                                         MatmulRung::kMmaSwizzled,    MatmulRung::kMma,   MatmulRung::kWgmmaTma,
                                         MatmulRung::kWgmmaMulticast, MatmulRung::kWgmma};

/// As in "wgmma_tma".
std::string matmul_rung_name(MatmulRung rung);

/// result[i][j] = sum over k of left[i][k] right[j][k]: all by rows, none padded, aligned to 16 bytes. `columns` and
/// `depth` are multiples of 8, so that each row begins on such a boundary; `rows` is any number.
struct LadderProduct {
  const __nv_bfloat16* left;   // rows x depth
  const __nv_bfloat16* right;  // columns x depth
  __nv_bfloat16* result;       // rows x columns
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t depth;
};

/// Why a device of this architecture (90 for 9.0) cannot run the rung; empty if it can.
std::string why_rung_unsupported(MatmulRung rung, int architecture);

/// What the compiler gave the rung's kernel on this device.
struct RungResources {
  int registers;  // of a thread, when it starts
  std::size_t shared_bytes;
  std::size_t spilled_bytes;  // of a thread
};
/// Throws NoDeviceCode where the build lacks the rung for this device: those of wgmma need one for 90a, not 90.
RungResources rung_resources(MatmulRung rung);

/// Enqueues the product. Throws std::invalid_argument for a shape or alignment that it cannot take.
void multiply(MatmulRung rung, const LadderProduct& product, cudaStream_t stream);

}  // namespace gpulift
