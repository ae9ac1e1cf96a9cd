#pragma once

namespace gpulift {

/// The child of a run, one process per launch: reads its jobs from standard input, runs one after the other, and sends
/// "started", "alive" and "record" messages; where its parent found a GPU that it cannot use, "lost_gpu" instead.
/// Returns its exit code: kPoisonedExit when the device's context can no longer be used and the remaining jobs need a
/// new process.
int serve_launch();

inline constexpr int kPoisonedExit = 70;

}  // namespace gpulift
