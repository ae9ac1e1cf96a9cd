#pragma once
// Host memory that the C library hands out (pageable), and the same registered with the driver (page-locked later).

#include <cstddef>
#include <memory>
#include <new>
#include <span>

namespace gpulift {

/// Pageable memory, aligned to a page. Uninitialised; throws std::bad_alloc when there is none.
class PageableBuffer {
 public:
  explicit PageableBuffer(std::size_t bytes)
      : bytes_(bytes), data_(static_cast<std::byte*>(::operator new(bytes, kPage))) {}

  std::byte* data() const { return data_.get(); }
  std::size_t bytes() const { return bytes_; }
  std::span<std::byte> span() const { return {data_.get(), bytes_}; }

 private:
  static constexpr std::align_val_t kPage{4096};
  struct Release {
    void operator()(std::byte* data) const { ::operator delete(data, kPage); }
  };

  std::size_t bytes_;
  std::unique_ptr<std::byte, Release> data_;
};

}  // namespace gpulift
