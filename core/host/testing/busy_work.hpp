#pragma once
// Shared by the testing techniques: work whose length is chosen by count, and a comparison of two such arms.

#include <cstdint>
#include <memory>
#include <utility>

#include "core/harness/technique.hpp"

namespace gpulift::testing_techniques {

/// A dependent chain that no compiler can shorten. The constants are those of Knuth's MMIX generator.
inline std::uint64_t busy_work(std::uint64_t start, int rounds) {
  volatile std::uint64_t state = start;
  for (int i = 0; i < rounds; ++i) state = state * 6364136223846793005ULL + 1442695040888963407ULL;
  return state;
}

/// What the arms of one case write and the check reads.
using Output = std::shared_ptr<std::uint64_t>;

inline Output make_output() { return std::make_shared<std::uint64_t>(0); }

/// Each arm writes 42; anything else is wrong.
inline Check expect_42(const Output& output) {
  return {.meaning = "exact number",
          .poison = [output](StreamHandle) { *output = 0; },
          .error = [output](StreamHandle) { return *output == 42 ? 0.0 : 1.0; }};
}

/// An arm that works for `rounds` rounds and then writes 42.
inline Arm working_arm(const std::string& name, const Output& output, int rounds) {
  return {.name = name,
          .make = [output,
                   rounds] { return [output, rounds](StreamHandle) { *output = busy_work(1, rounds) == 0 ? 0 : 42; }; },
          .clock = Clock::kHost};
}

/// Compares a baseline that is in order with the given arm.
inline void compare_with(Trial& trial, Arm arm, const Output& output) {
  trial.check(expect_42(output));
  trial.compare({working_arm("baseline", output, 1000), std::move(arm)});
}

}  // namespace gpulift::testing_techniques
