#include "workloads/registered_host.hpp"

#include <cuda_runtime_api.h>

#include "core/cuda/check.hpp"

namespace gpulift {

RegisteredHost::RegisteredHost(Device& device, void* data, std::size_t bytes)
    : ledger_(&device.pinned_memory()), data_(data), bytes_(bytes) {
  check(cudaHostRegister(data, bytes, cudaHostRegisterDefault));
  ledger_->add(bytes_);
}

RegisteredHost::~RegisteredHost() {
  if (data_ == nullptr) return;
  static_cast<void>(cudaHostUnregister(data_));
  ledger_->remove(bytes_);
}

}  // namespace gpulift
