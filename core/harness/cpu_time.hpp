#pragma once

#include <sys/types.h>

#include <map>

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
  /// Counts from now on. Takes a microsecond for each descendant that was found before; only where one of these has
  /// ended, all are looked for. One that has begun since then counts with all that it did, though it has ended.
  void restart();
  /// So far; never below 0, though what a lost descendant had used goes with it.
  double used_s() const;

 private:
  struct Others {
    double used_s = 0;
    std::map<pid_t, double> waited_s = {};  // of each that lives, what its own ended children had used
  };
  static Others found();
  bool ask_again();

  bool with_children_;
  Others others_;
  double own_s_;
};

}  // namespace gpulift
