#pragma once

#include <optional>
#include <vector>

namespace gpulift {

/// Half-width of the order-statistic interval of the median at the given confidence (e.g. 0.975), without any
/// assumption about the distribution: the widest distance from the median to the pair of order statistics that covers
/// it. None when there are too few values for that confidence (fewer than 7 for 0.975).
///
/// Used to decide when to stop, never reported as a result.
std::optional<double> median_half_width(std::vector<double> values, double confidence);

double median(std::vector<double> values);

}  // namespace gpulift
