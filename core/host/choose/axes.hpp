#pragma once
// Values that the command line gives axes, in place of those of a technique's sweep.

#include <functional>
#include <string>
#include <vector>

#include "core/host/record/catalogue.hpp"

namespace gpulift {

struct AxisValues {
  std::string name;
  std::vector<std::string> values;
};

/// Of "rows=1048576" or "shape=64x64x64,128x64x64". Throws std::invalid_argument for what is no such text.
AxisValues parse_axis(const std::string& text);

/// The techniques that have all these axes, with cases of these values in place of the sweep's on them. A case that the
/// sweep has stays that case, quick as it was; any other is `off_sweep`, and as quick as those that it stands for.
/// Techniques whose cases are not known stay as they are. Throws std::invalid_argument where a technique that
/// `is_selected` cannot have a value, or none of these has the axes: it then names those that there are.
std::vector<TechniqueInfo> with_axes(const std::vector<TechniqueInfo>& catalogue, const std::vector<AxisValues>& axes,
                                     const std::function<bool(const TechniqueInfo&)>& is_selected);

}  // namespace gpulift
