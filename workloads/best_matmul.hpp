#pragma once
// Which of several shapes multiplies at the highest rate.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/cuda/device.hpp"
#include "workloads/matmul.hpp"

namespace gpulift {

/// Of the shapes the `wanted` ones of the highest arithmetic rate, the highest first. `time_s` is asked for the time of
/// each until the budget is over; where it throws OutOfMemory the shape is passed over, as a smaller one may fit.
/// Throws OutOfMemory if that is all.
std::vector<MatmulShape> fastest_shapes(std::span<const MatmulShape> shapes, double budget_s, std::size_t wanted,
                                        const std::function<double(const MatmulShape&)>& time_s);

/// Which of the shapes has the highest rate in the middle of three rounds, in each of which all are timed in turn.
std::size_t play_off(std::span<const MatmulShape> shapes, const std::function<double(std::size_t)>& time_s);

/// The plan of the highest arithmetic rate over the shapes: all are tried with the library's first choices, then the
/// best four with all candidates, and those are timed in turn, rested as the search says, in longer windows. Shapes for
/// which memory is short are passed over; throws OutOfMemory if that is all.
MatmulPlan find_best_matmul(Device& device, MatmulType type, std::span<const MatmulShape> shapes, std::uint64_t seed,
                            const MatmulSearch& search);

}  // namespace gpulift
