#pragma once
// By what NCCL's channels go, as it says itself.

#include <string>

namespace gpulift {

/// "NET/IB, P2P/CUMEM": of all channels in a log of NCCL's; "not told" where there is none.
std::string transport_in(const std::string& log);

/// Lets NCCL log to memory. To be made ahead of its first call in this process.
class TransportLog {
 public:
  /// Throws std::system_error.
  TransportLog();
  ~TransportLog();
  TransportLog(const TransportLog&) = delete;
  TransportLog& operator=(const TransportLog&) = delete;

  /// Once ranks have exchanged something: NCCL connects no sooner.
  std::string told() const;

 private:
  int memory_;
};

}  // namespace gpulift
