#pragma once
// Which of the two builds of a fault this is.

#include "core/host/testing/variant.hpp"

namespace gpulift::testing_faults {

/// Whether this build has the fault; the other one is as it should be.
inline bool is_faulty() { return testing_techniques::kVariant != 0; }

}  // namespace gpulift::testing_faults
