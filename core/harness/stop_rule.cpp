#include "stop_rule.hpp"

#include <algorithm>
#include <boost/math/distributions/binomial.hpp>
#include <stdexcept>

namespace gpulift {

double median(std::vector<double> values) {
  if (values.empty()) throw std::invalid_argument("the median of no values");
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::optional<double> median_half_width(std::vector<double> values, double confidence) {
  if (values.empty()) return std::nullopt;
  // The r-th smallest value lies above the median with probability P(Binomial(n, 1/2) <= r - 1).
  const boost::math::binomial signs(static_cast<double>(values.size()), 0.5);
  std::size_t rank = 0;
  while (boost::math::cdf(signs, static_cast<double>(rank)) <= (1 - confidence) / 2) ++rank;
  if (rank == 0) return std::nullopt;
  std::sort(values.begin(), values.end());
  const double middle = median(values);
  return std::max(middle - values[rank - 1], values[values.size() - rank] - middle);
}

}  // namespace gpulift
