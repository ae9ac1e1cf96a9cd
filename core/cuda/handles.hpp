#pragma once
// RAII for the runtime's handles. Move-only; destructors never throw.

#include <cuda_runtime_api.h>

#include <utility>

#include "check.hpp"

namespace gpulift {

/// A handle that is destroyed by a runtime function.
template <typename Handle, cudaError_t (*Destroy)(Handle)>
class UniqueHandle {
 public:
  UniqueHandle() = default;
  explicit UniqueHandle(Handle handle) : handle_(handle) {}
  ~UniqueHandle() {
    if (handle_ != nullptr) static_cast<void>(Destroy(handle_));
  }
  UniqueHandle(UniqueHandle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  UniqueHandle& operator=(UniqueHandle&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  Handle get() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};

using UniqueStream = UniqueHandle<cudaStream_t, cudaStreamDestroy>;
using UniqueEvent = UniqueHandle<cudaEvent_t, cudaEventDestroy>;
using UniqueGraph = UniqueHandle<cudaGraph_t, cudaGraphDestroy>;
using UniqueGraphExec = UniqueHandle<cudaGraphExec_t, cudaGraphExecDestroy>;

/// A stream that does not wait for the legacy default stream.
inline UniqueStream make_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return UniqueStream(stream);
}

/// An event that carries a time stamp.
inline UniqueEvent make_timing_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreate(&event));
  return UniqueEvent(event);
}

/// An event for ordering alone, cheaper than one with a time stamp.
inline UniqueEvent make_ordering_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return UniqueEvent(event);
}

}  // namespace gpulift
