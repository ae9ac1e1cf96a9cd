#include "core/host/testing/variant.hpp"

namespace gpulift::testing_techniques {
const int kVariant = GPULIFT_VARIANT;
}  // namespace gpulift::testing_techniques
