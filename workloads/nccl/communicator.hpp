#pragma once
// NCCL for arms whose ranks talk to each other.

#include <nccl.h>

#include <source_location>
#include <string>
#include <string_view>

#include "core/harness/technique.hpp"

namespace gpulift {

void check(ncclResult_t status, const std::source_location& place = std::source_location::current());

/// The version of the library in use, for Trial::version(): "2.28.9". Throws NotSupported where this was built for
/// another release: types and constants may differ.
std::string nccl_version();

/// As above, of the code that ncclGetVersion() gives.
std::string nccl_version_of(int code);

/// The bytes of the id as hexadecimal digits, for Trial::from_first().
std::string text_of(const ncclUniqueId& id);

/// Throws Error for what text_of() did not make.
ncclUniqueId unique_id_of(std::string_view text);

/// What joins the ranks of an arm. Made by all of them, each on its own GPU.
class Communicator {
 public:
  /// In Arm::make. Waits for the other ranks.
  explicit Communicator(Trial& trial);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  ncclComm_t get() const { return handle_; }
  Group group() const { return group_; }

 private:
  Group group_;
  ncclComm_t handle_ = nullptr;
};

}  // namespace gpulift
