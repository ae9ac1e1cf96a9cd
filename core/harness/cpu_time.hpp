#pragma once

namespace gpulift {

/// Processor time that this process with all its threads has used so far, in seconds of user and system time. The
/// difference between two calls is what was used meanwhile.
///
/// With children, that of its descendants is in it, whether they live, have ended or were waited for: a child that
/// begins or ends between two calls counts with all that it used. Exact to the kernel's tick (10 ms on most machines)
/// for children that a living descendant has waited for, and finer for the rest. A descendant that outlives its parent
/// is lost, and so is a child whose end was ignored (SIGCHLD): then a difference may be negative. Where the kernel
/// lists no children (CONFIG_PROC_CHILDREN) a child counts when it was waited for. It takes some ten microseconds
/// for each thread and descendant.
double now_cpu_s(bool with_children);

}  // namespace gpulift
