#pragma once

#include <functional>
#include <string>
#include <vector>

namespace gpulift {

/// Indices of the GPUs that a user names: each by its index, by its UUID as nvidia-smi -L prints it, or by the start of
/// that ("GPU-1a2b"), or "all" alone. `uuids` tells those of the visible ones in their order, and is asked only where
/// one is no index. Throws std::invalid_argument.
std::vector<int> gpu_indices(const std::vector<std::string>& names,
                             const std::function<std::vector<std::string>()>& uuids);

}  // namespace gpulift
