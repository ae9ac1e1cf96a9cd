#include "channel.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <iostream>
#include <string>
#include <system_error>

#include "process.hpp"

namespace gpulift {

std::optional<nlohmann::ordered_json> Channel::receive() {
  std::string line;
  if (!std::getline(std::cin, line)) return std::nullopt;
  return nlohmann::ordered_json::parse(line);
}

void Channel::send(const nlohmann::ordered_json& message) {
  const std::string line = message.dump() + "\n";
  std::size_t sent = 0;
  while (sent < line.size()) {
    const ssize_t written = write(Process::kReplyDescriptor, line.data() + sent, line.size() - sent);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw std::system_error(errno, std::generic_category(), "the parent process no longer listens");
    sent += static_cast<std::size_t>(written);
  }
}

void die_with_parent() { prctl(PR_SET_PDEATHSIG, SIGKILL); }

}  // namespace gpulift
