#pragma once
// Which of several shapes multiplies at the highest rate.

#include <cstdint>
#include <span>

#include "core/cuda/device.hpp"
#include "workloads/matmul.hpp"

namespace gpulift {

/// The plan of the highest arithmetic rate over the shapes: all are tried with the library's first choices, then the
/// best four with all candidates, and those are timed in turn, rested as the search says, in longer windows. Shapes for
/// which memory is short are passed over; throws OutOfMemory if that is all.
MatmulPlan find_best_matmul(Device& device, MatmulType type, std::span<const MatmulShape> shapes, std::uint64_t seed,
                            const MatmulSearch& search);

}  // namespace gpulift
