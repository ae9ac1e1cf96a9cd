#include "check.hpp"

namespace gpulift {

void check(cudaError_t status, const std::source_location& place) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // a non-sticky error must not be found again by the next launch
  const std::string text = describe_failure("CUDA", cudaGetErrorName(status), cudaGetErrorString(status), place);
  if (status == cudaErrorMemoryAllocation) throw OutOfMemory(text);
  if (status == cudaErrorNotSupported) throw NotSupported(text);
  if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction ||
      status == cudaErrorUnsupportedPtxVersion) {
    throw NoDeviceCode(text);
  }
  throw Error(text);
}

}  // namespace gpulift
