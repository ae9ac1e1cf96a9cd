#pragma once

namespace gpulift {

/// Processor time that this process with all its threads uses from construction on, in seconds of user and system time.
///
/// With children, that of its descendants is in it, whether they live, have ended or were waited for: a child that
/// begins or ends meanwhile counts with all that it used. Exact to the kernel's tick (10 ms on most machines) for
/// children that a living descendant has waited for, and finer for the rest. A descendant that outlives its parent is
/// lost, and so is a child whose end was ignored (SIGCHLD). Where the kernel lists no children (CONFIG_PROC_CHILDREN) a
/// child counts when it was waited for. Looking takes a few microseconds for each thread and descendant, which are not
/// in what was used.
class CpuMeter {
 public:
  explicit CpuMeter(bool with_children);
  /// So far; never below 0, though what a lost descendant had used goes with it.
  double used_s() const;

 private:
  bool with_children_;
  double others_s_;
  double own_s_;
};

}  // namespace gpulift
