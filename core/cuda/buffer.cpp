#include "buffer.hpp"

#include "check.hpp"

namespace gpulift {

RawBuffer::RawBuffer(Device& device, Kind kind, std::size_t bytes)
    : ledger_(kind == Kind::kDevice ? &device.memory() : &device.pinned_memory()), kind_(kind), bytes_(bytes) {
  check(kind == Kind::kDevice ? cudaMalloc(&data_, bytes) : cudaMallocHost(&data_, bytes));
  ledger_->add(bytes_);
}

RawBuffer::~RawBuffer() {
  if (data_ == nullptr) return;
  static_cast<void>(kind_ == Kind::kDevice ? cudaFree(data_) : cudaFreeHost(data_));
  ledger_->remove(bytes_);
}

}  // namespace gpulift
