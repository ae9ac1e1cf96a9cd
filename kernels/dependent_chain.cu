#include <nv/target>

#include "core/cuda/check.hpp"
#include "kernels/dependent_chain.hpp"

namespace gpulift {
namespace {

constexpr int kWarp = 32;
constexpr int kLeastArchitecture = 90;

/// A step of Knuth's linear congruential generator.
__host__ __device__ std::uint64_t next_value(std::uint64_t value) {
  return value * 6364136223846793005ull + 1442695040888963407ull;
}

__global__ void chain_kernel(std::int64_t cycles, std::uint64_t* value) {
  // The next may start at once. It waits as this one does: until the kernel before it has ended and its writes are
  // seen. Without the attribute at launch both say nothing.
  NV_IF_TARGET(NV_PROVIDES_SM_90, (cudaTriggerProgrammaticLaunchCompletion(); cudaGridDependencySynchronize();));
  const std::int64_t start = clock64();
  const std::uint64_t held = *value;
  while (clock64() - start < cycles) {
  }
  if (threadIdx.x == 0) *value = next_value(held);
}

}  // namespace

void dependent_chain(std::int64_t kernels, std::int64_t cycles, std::uint64_t* value, ChainLaunch launch,
                     cudaStream_t stream) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(kWarp);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = launch == ChainLaunch::kProgrammatic ? 1 : 0;
  for (std::int64_t i = 0; i < kernels; ++i) check(cudaLaunchKernelEx(&config, chain_kernel, cycles, value));
}

std::uint64_t after_chain(std::int64_t kernels, std::uint64_t value) {
  for (std::int64_t i = 0; i < kernels; ++i) value = next_value(value);
  return value;
}

std::string why_no_programmatic_launch(int architecture) {
  if (architecture >= kLeastArchitecture) return "";
  return "programmatic dependent launch needs compute capability 9.0 or later; this device has " +
         std::to_string(architecture / 10) + "." + std::to_string(architecture % 10);
}

}  // namespace gpulift
