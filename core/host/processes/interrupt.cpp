#include "interrupt.hpp"

#include <signal.h>

#include <atomic>

namespace gpulift {
namespace {

// A signal handler can reach nothing but a variable of static storage.
std::atomic<bool>& flag() {
  static std::atomic<bool> raised = false;
  return raised;
}

void raise_flag(int /*signal*/) { flag() = true; }

}  // namespace

void notice_interrupts() {
  flag() = false;
  struct sigaction action{};
  action.sa_handler = raise_flag;  // without SA_RESTART, so that waiting for a child ends
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  struct sigaction ignore{};
  ignore.sa_handler = SIG_IGN;  // a child that has gone is noticed by its silence
  sigaction(SIGPIPE, &ignore, nullptr);
}

bool interrupted() { return flag(); }

}  // namespace gpulift
