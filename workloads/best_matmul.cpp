#include "workloads/best_matmul.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/cuda/error.hpp"
#include "workloads/deadline.hpp"

namespace gpulift {
namespace {

/// The `wanted` shapes of the highest rate with the library's first choices of algorithm.
std::vector<MatmulShape> fastest_shapes(Device& device, MatmulType type, std::span<const MatmulShape> shapes,
                                        std::uint64_t seed, double budget_s, std::size_t wanted) {
  struct Candidate {
    MatmulShape shape;
    double flop_rate;
  };
  const Deadline deadline(budget_s);
  std::vector<Candidate> tried;
  for (const MatmulShape& shape : shapes) {
    if (!tried.empty() && deadline.passed()) break;
    try {
      Matmul matmul(device, type, shape, seed);
      const double time_s = matmul.search({budget_s / static_cast<double>(shapes.size()), 0, 4}).time_s;
      tried.push_back({shape, shape.flops() / time_s});
    } catch (const OutOfMemory&) {
      continue;  // a smaller shape may fit
    }
  }
  if (tried.empty()) throw OutOfMemory("no shape of the search fits into the device's memory");
  std::ranges::sort(tried, std::ranges::greater{}, &Candidate::flop_rate);
  tried.resize(std::min(tried.size(), wanted));
  std::vector<MatmulShape> fastest;
  for (const Candidate& candidate : tried) fastest.push_back(candidate.shape);
  return fastest;
}

/// One shape with its best algorithm, and what it reached so far.
struct Finalist {
  Matmul matmul;
  MatmulPlan plan;
  std::vector<double> flop_rates;
};

/// The finalists in turn, in windows like those that count: a short window after no rest favours other shapes.
MatmulPlan play_off(std::vector<Finalist> finalists, bool rested) {
  constexpr int kRounds = 3;
  constexpr double kWindow_s = 3e-3;
  constexpr double kRest_s = 0.03;
  for (int round = 0; round < kRounds; ++round) {
    for (Finalist& finalist : finalists) {
      const double time_s = finalist.matmul.time_s(kWindow_s, rested ? kRest_s : 0);
      finalist.flop_rates.push_back(finalist.plan.shape.flops() / time_s);
    }
  }
  const auto middle = [](Finalist& finalist) {
    std::ranges::sort(finalist.flop_rates);
    return finalist.flop_rates[kRounds / 2];
  };
  return std::ranges::max_element(finalists, {}, middle)->plan;
}

}  // namespace

MatmulPlan find_best_matmul(Device& device, MatmulType type, std::span<const MatmulShape> shapes, std::uint64_t seed,
                            const MatmulSearch& search) {
  constexpr std::size_t kFinalists = 4;
  const Deadline deadline(search.budget_s);
  std::vector<MatmulShape> finalists(shapes.begin(), shapes.end());
  if (shapes.size() > kFinalists)
    finalists = fastest_shapes(device, type, shapes, seed, search.budget_s / 2, kFinalists);
  if (finalists.empty()) throw std::invalid_argument("a search needs at least one shape");

  std::vector<Finalist> played;
  for (std::size_t i = 0; i < finalists.size(); ++i) {
    const double share_s = deadline.left_s() / static_cast<double>(finalists.size() - i);
    Matmul matmul(device, type, finalists[i], seed);
    MatmulPlan plan = matmul.search({share_s, search.rest_s, search.candidates}).plan;
    played.push_back({std::move(matmul), std::move(plan), {}});
  }
  return play_off(std::move(played), search.rest_s > 0);
}

}  // namespace gpulift
