#pragma once

#include <cstddef>
#include <string>

namespace gpulift {

/// What bounds a step that moves so many bytes, the same ones every time: device memory, or where the L2 may keep some
/// of them from step to step, no roof. A share of a roof would then be that of another memory.
inline std::string memory_roof(std::size_t l2_bytes, double step_bytes) {
  return step_bytes > 3 * static_cast<double>(l2_bytes) ? "device_memory" : "";
}

}  // namespace gpulift
