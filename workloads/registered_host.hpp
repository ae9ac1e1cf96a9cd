#pragma once

#include <cstddef>
#include <utility>

#include "core/cuda/device.hpp"

namespace gpulift {

/// Page-locks host memory that somebody else owns (cudaHostRegister) for as long as it lives, and counts the bytes in
/// the device's ledger of pinned memory. The memory must outlive it. Throws Error when the driver refuses.
class RegisteredHost {
 public:
  RegisteredHost(Device& device, void* data, std::size_t bytes);
  ~RegisteredHost();
  RegisteredHost(RegisteredHost&& other) noexcept
      : ledger_(other.ledger_), data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  RegisteredHost& operator=(RegisteredHost&& other) noexcept {
    std::swap(ledger_, other.ledger_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

 private:
  MemoryLedger* ledger_;
  void* data_;
  std::size_t bytes_;
};

}  // namespace gpulift
