#include "workloads/best_matmul.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <stdexcept>
#include <vector>

#include "core/cuda/error.hpp"
#include "workloads/deadline.hpp"

namespace gpulift {

std::vector<MatmulShape> fastest_shapes(std::span<const MatmulShape> shapes, double budget_s, std::size_t wanted,
                                        const std::function<double(const MatmulShape&)>& time_s) {
  struct Candidate {
    MatmulShape shape;
    double flop_rate;
  };
  const Deadline deadline(budget_s);
  std::vector<Candidate> tried;
  for (const MatmulShape& shape : shapes) {
    if (!tried.empty() && deadline.passed()) break;
    try {
      tried.push_back({shape, shape.flops() / time_s(shape)});
    } catch (const OutOfMemory&) {
      continue;
    }
  }
  if (tried.empty()) throw OutOfMemory("no shape of the search fits into the device's memory");
  std::ranges::sort(tried, std::ranges::greater{}, &Candidate::flop_rate);
  tried.resize(std::min(tried.size(), wanted));
  std::vector<MatmulShape> fastest;
  for (const Candidate& candidate : tried) fastest.push_back(candidate.shape);
  return fastest;
}

std::size_t play_off(std::span<const MatmulShape> shapes, const std::function<double(std::size_t)>& time_s) {
  constexpr std::size_t kRounds = 3;
  std::vector<std::array<double, kRounds>> flop_rates(shapes.size());
  for (std::size_t round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < shapes.size(); ++i) flop_rates[i][round] = shapes[i].flops() / time_s(i);
  }
  const auto middle = [](std::array<double, kRounds> of_one) {
    std::ranges::sort(of_one);
    return of_one[kRounds / 2];
  };
  return static_cast<std::size_t>(std::ranges::max_element(flop_rates, {}, middle) - flop_rates.begin());
}

MatmulPlan find_best_matmul(Device& device, MatmulType type, std::span<const MatmulShape> shapes, std::uint64_t seed,
                            const MatmulSearch& search) {
  constexpr std::size_t kFinalists = 4;
  // Windows of the play-off are like those that count: a short window after no rest favours other shapes.
  constexpr double kWindow_s = 3e-3;
  constexpr double kRest_s = 0.03;
  const Deadline deadline(search.budget_s);
  std::vector<MatmulShape> finalists(shapes.begin(), shapes.end());
  if (shapes.size() > kFinalists) {
    const double budget_s = search.budget_s / 2;
    finalists = fastest_shapes(shapes, budget_s, kFinalists, [&](const MatmulShape& shape) {
      return Matmul(device, type, shape, seed).search({budget_s / static_cast<double>(shapes.size()), 0, 4}).time_s;
    });
  }
  if (finalists.empty()) throw std::invalid_argument("a search needs at least one shape");

  std::vector<Matmul> products;
  std::vector<MatmulPlan> plans;
  for (std::size_t i = 0; i < finalists.size(); ++i) {
    const double share_s = deadline.left_s() / static_cast<double>(finalists.size() - i);
    products.emplace_back(device, type, finalists[i], seed);
    plans.push_back(products.back().search({share_s, search.rest_s, search.candidates}).plan);
  }
  return plans[play_off(finalists,
                        [&](std::size_t i) { return products[i].time_s(kWindow_s, search.rest_s > 0 ? kRest_s : 0); })];
}

}  // namespace gpulift
