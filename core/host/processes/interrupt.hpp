#pragma once

namespace gpulift {

/// From now on Ctrl-C and SIGTERM do not end this process but make interrupted() true, so that what was measured is
/// kept and said.
void notice_interrupts();
bool interrupted();

}  // namespace gpulift
