#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

namespace gpulift {

/// The library of core/cuda/launch_counter.cpp, beside this program; there is none in a build without CUDA or CUPTI.
std::filesystem::path launch_counter_library();

/// What this process hands to its devices while `work` runs, as `library` counts it: kernels, copies, fills and graphs,
/// each as one. None, and `work` does not run, where it cannot be counted. `work` waits for the devices, and nothing in
/// it may be timed.
std::optional<std::int64_t> launches_during(const std::filesystem::path& library, const std::function<void()>& work);

}  // namespace gpulift
