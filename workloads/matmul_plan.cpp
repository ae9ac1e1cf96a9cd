#include "workloads/matmul_plan.hpp"

#include <cublasLt.h>

#include <charconv>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <vector>

namespace gpulift {
namespace {

static_assert(sizeof(MatmulPlan::algorithm) == sizeof(cublasLtMatmulAlgo_t));

/// The parts between separators; a separator at the very end adds none.
std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream{std::string(text)};
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

template <typename T>
T parse_number(const std::string& text, int base) {
  T value{};
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (problem != std::errc() || end != text.data() + text.size()) {
    throw std::invalid_argument("not a number: '" + text + "'");
  }
  return value;
}

}  // namespace

std::string to_string(const MatmulShape& shape) {
  return std::to_string(shape.m) + "x" + std::to_string(shape.n) + "x" + std::to_string(shape.k);
}

MatmulShape parse_matmul_shape(std::string_view text) {
  const std::vector<std::string> parts = split(text, 'x');
  if (parts.size() != 3 || text.ends_with('x')) {
    throw std::invalid_argument("not a shape <m>x<n>x<k>: '" + std::string(text) + "'");
  }
  const MatmulShape shape{parse_number<std::int64_t>(parts[0], 10), parse_number<std::int64_t>(parts[1], 10),
                          parse_number<std::int64_t>(parts[2], 10)};
  if (shape.m <= 0 || shape.n <= 0 || shape.k <= 0) {
    throw std::invalid_argument("a shape has positive sides: '" + std::string(text) + "'");
  }
  return shape;
}

MatmulShape padded_to(const MatmulShape& shape, std::int64_t multiple) {
  const auto rounded_up = [&](std::int64_t side) { return (side + multiple - 1) / multiple * multiple; };
  return {rounded_up(shape.m), shape.n, rounded_up(shape.k)};
}

std::size_t matmul_library_version() { return cublasLtGetVersion(); }

std::string to_string(const MatmulPlan& plan) {
  std::ostringstream text;
  text << to_string(plan.shape) << ' ' << plan.library_version << ' ' << std::hex;
  text.fill('0');
  for (const std::uint64_t word : plan.algorithm) {
    text.width(16);
    text << word;
  }
  return text.str();
}

MatmulPlan parse_matmul_plan(std::string_view text) {
  constexpr std::size_t kDigits = 16;
  const std::vector<std::string> parts = split(text, ' ');
  MatmulPlan plan;
  if (parts.size() != 3 || parts[2].size() != kDigits * plan.algorithm.size()) {
    throw std::invalid_argument("not a matrix product plan: '" + std::string(text) + "'");
  }
  plan.shape = parse_matmul_shape(parts[0]);
  plan.library_version = parse_number<std::size_t>(parts[1], 10);
  for (std::size_t word = 0; word < plan.algorithm.size(); ++word) {
    plan.algorithm[word] = parse_number<std::uint64_t>(parts[2].substr(word * kDigits, kDigits), 16);
  }
  return plan;
}

MatmulPlan plan_of_case(Trial& trial, const std::string& name, const std::function<MatmulPlan()>& search) {
  const std::optional<std::string> known = trial.recall("plan/" + name);
  MatmulPlan plan = known ? parse_matmul_plan(*known) : MatmulPlan{};
  if (known && plan.library_version == matmul_library_version()) {
    plan.description = trial.recall("algorithm/" + name).value_or("");
  } else {
    plan = search();
  }
  trial.note("plan/" + name, to_string(plan));
  trial.note("algorithm/" + name, plan.description);
  return plan;
}

}  // namespace gpulift
