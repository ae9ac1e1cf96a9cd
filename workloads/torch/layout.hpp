#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace gpulift {

/// Copies of 4-D tensors (weights and their gradients too) from the contiguous layout to channels_last, or back, that
/// torch makes while `work` runs, each by the sizes of its tensor: "64x3x7x7". Its backward threads are included. What
/// cuDNN or oneDNN convert within a call is not among them.
std::vector<std::string> layout_copies(const std::function<void()>& work);

/// Kernels among those that `work` launches whose names say that they turn NCHW into NHWC or back: cuDNN's. The work is
/// captured on torch's current stream, which must not be the default one, and not run.
std::int64_t layout_kernels(const std::function<void()>& work);

}  // namespace gpulift
