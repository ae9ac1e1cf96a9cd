// Preloaded in front of the CUDA runtime: a machine with one GPU that refuses a context, with the error (its number) in
// GPULIFT_FAKE_CUDA_ERROR. What is not below is the real runtime's.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <string>

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int /*device*/) {
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "Fake GPU");
  properties->major = 12;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int /*device*/) {
  std::snprintf(text, static_cast<std::size_t>(size), "0000:FF:1F.7");
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr /*name*/, int /*device*/) {
  *value = 1;
  return cudaSuccess;
}

cudaError_t cudaInitDevice(int /*device*/, unsigned int /*device_flags*/, unsigned int /*flags*/) {
  const char* error = std::getenv("GPULIFT_FAKE_CUDA_ERROR");
  return error != nullptr ? static_cast<cudaError_t>(std::stoi(error)) : cudaErrorUnknown;
}
