#pragma once

namespace gpulift {

/// True when the hardware itself cut the clocks (slowdown, thermal, power brake): such a window says nothing about the
/// code. A software limit (power cap, temperature target) is a state that a card may stay in, and only labels a window.
/// Bits as in GpuSample::throttle_reasons.
bool is_hardware_slowdown(unsigned long long reasons);

}  // namespace gpulift
