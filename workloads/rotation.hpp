#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <stdexcept>

namespace gpulift {

/// Over how many bytes to rotate so that no slot lies in a cache of the host any more when its turn comes again: twice
/// the last-level caches, as smaller ones come on top of them and slots need not fill the footprint. 1 GiB where their
/// size is not known.
inline std::size_t footprint_beyond(std::optional<std::size_t> last_level_cache_bytes) {
  constexpr std::size_t kLeast = std::size_t{256} << 20;  // more than 3 times the L2 of a device, too
  constexpr std::size_t kUnknown = std::size_t{1} << 30;
  return last_level_cache_bytes ? std::max(kLeast, 2 * *last_level_cache_bytes) : kUnknown;
}

/// Deals out slots of one large buffer in turn, so that a small unit of work does not find its own data still in a
/// cache. The buffer holds slots() * slot_bytes() bytes: the footprint, or one slot where that is larger.
class Rotation {
 public:
  /// Throws std::invalid_argument for a slot of no bytes.
  Rotation(std::size_t slot_bytes, std::size_t footprint_bytes) : slot_bytes_(slot_bytes) {
    if (slot_bytes == 0) throw std::invalid_argument("Rotation: a slot needs at least one byte");
    slots_ = std::max<std::size_t>(1, footprint_bytes / slot_bytes);
    current_ = slots_ - 1;
  }

  /// Moves on to the next slot, from the last one to the first, and returns its offset in bytes.
  std::size_t next_offset() {
    current_ = current_ + 1 == slots_ ? 0 : current_ + 1;
    return offset();
  }
  /// The offset in bytes of the slot that was dealt out last.
  std::size_t offset() const { return current_ * slot_bytes_; }

  std::size_t slots() const { return slots_; }
  std::size_t slot_bytes() const { return slot_bytes_; }
  std::size_t bytes() const { return slots_ * slot_bytes_; }

 private:
  std::size_t slot_bytes_;
  std::size_t slots_;
  std::size_t current_;
};

}  // namespace gpulift
