#pragma once
// For tests: results that are the same to the last bit in every run.

#include <ATen/Context.h>

namespace gpulift {

/// While it lives, torch takes kernels that repeat, none that add in any order. What repeats nowhere only warns.
class RepeatingKernels {
 public:
  RepeatingKernels() { at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true); }
  ~RepeatingKernels() { at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false); }
  RepeatingKernels(const RepeatingKernels&) = delete;
  RepeatingKernels& operator=(const RepeatingKernels&) = delete;
};

}  // namespace gpulift
