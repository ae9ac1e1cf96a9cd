#include "hardware_slowdown.hpp"

#include <algorithm>

#include "core/harness/gpu_sample.hpp"
#include "core/host/record/registers.hpp"

namespace gpulift {

bool is_hardware_slowdown(unsigned long long reasons) {
  const auto names = throttle_names(reasons);
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return slowdowns().value(name, "") == "hardware"; });
}

}  // namespace gpulift
