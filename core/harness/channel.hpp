#pragma once

#include <optional>

#include "json.hpp"

namespace gpulift {

/// The child's side of Process: JSON lines from standard input and to Process::kReplyDescriptor.
class Channel {
 public:
  /// None when the parent closed the line. Throws nlohmann::json::exception when a line is not JSON.
  std::optional<nlohmann::ordered_json> receive();
  void send(const nlohmann::ordered_json& message);
};

/// Asks the system to end this process when its parent ends, so that `kill -9` of a run leaves nothing behind.
void die_with_parent();

}  // namespace gpulift
