#pragma once
// Which of the two builds of a fault this is.

namespace gpulift::testing_faults {

/// Whether this build has the fault; the other one is as it should be.
inline constexpr bool kFaulty = GPULIFT_FAULT != 0;

}  // namespace gpulift::testing_faults
