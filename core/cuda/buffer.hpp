#pragma once

#include <cstddef>
#include <utility>

#include "device.hpp"

namespace gpulift {

/// Bytes of one kind of memory, counted in the ledger they came from. The base of the typed buffers below.
class RawBuffer {
 public:
  enum class Kind { kDevice, kPinned };

  /// Throws OutOfMemory when the memory is exhausted.
  RawBuffer(Device& device, Kind kind, std::size_t bytes);
  ~RawBuffer();
  RawBuffer(RawBuffer&& other) noexcept
      : ledger_(other.ledger_), kind_(other.kind_), bytes_(other.bytes_), data_(std::exchange(other.data_, nullptr)) {}
  RawBuffer& operator=(RawBuffer&& other) noexcept {
    std::swap(ledger_, other.ledger_);
    std::swap(kind_, other.kind_);
    std::swap(bytes_, other.bytes_);
    std::swap(data_, other.data_);
    return *this;
  }

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  MemoryLedger* ledger_;
  Kind kind_;
  std::size_t bytes_;
  void* data_ = nullptr;
};

/// `count` elements of T in device memory. Uninitialised.
template <typename T>
class DeviceBuffer {
 public:
  DeviceBuffer(Device& device, std::size_t count) : raw_(device, RawBuffer::Kind::kDevice, count * sizeof(T)) {}
  T* data() const { return static_cast<T*>(raw_.data()); }
  std::size_t size() const { return raw_.bytes() / sizeof(T); }
  std::size_t bytes() const { return raw_.bytes(); }

 private:
  RawBuffer raw_;
};

/// `count` elements of T in page-locked host memory. Uninitialised.
template <typename T>
class PinnedBuffer {
 public:
  PinnedBuffer(Device& device, std::size_t count) : raw_(device, RawBuffer::Kind::kPinned, count * sizeof(T)) {}
  T* data() const { return static_cast<T*>(raw_.data()); }
  std::size_t size() const { return raw_.bytes() / sizeof(T); }
  std::size_t bytes() const { return raw_.bytes(); }

 private:
  RawBuffer raw_;
};

}  // namespace gpulift
