#include "communicator.hpp"

#include <cstddef>
#include <span>

#include "core/cuda/device.hpp"
#include "core/cuda/error.hpp"

namespace gpulift {
namespace {

constexpr std::string_view kDigits = "0123456789abcdef";

/// "2.28" of 22809. Releases before 2.9, with three digits less, have no business here.
std::string release_of(int code) { return std::to_string(code / 10000) + "." + std::to_string(code / 100 % 100); }

std::size_t value_of(char digit) {
  const std::size_t value = kDigits.find(digit);
  if (value == std::string_view::npos)
    throw Error("this is no id of an NCCL communicator: it holds what is no hexadecimal digit");
  return value;
}

ncclUniqueId make_unique_id() {
  ncclUniqueId id{};
  check(ncclGetUniqueId(&id));
  return id;
}

}  // namespace

void check(ncclResult_t status, const std::source_location& place) {
  if (status == ncclSuccess) return;
  throw Error(describe_failure("NCCL", "error " + std::to_string(status), ncclGetErrorString(status), place));
}

std::string nccl_version() {
  int code = 0;
  check(ncclGetVersion(&code));
  return nccl_version_of(code);
}

std::string nccl_version_of(int code) {
  const std::string version = release_of(code) + "." + std::to_string(code % 100);
  if (release_of(code) != release_of(NCCL_VERSION_CODE)) {
    throw NotSupported("NCCL " + version + " is in use, but this was built for NCCL " + release_of(NCCL_VERSION_CODE) +
                       ": build it again, or take the other out of LD_LIBRARY_PATH");
  }
  return version;
}

std::string text_of(const ncclUniqueId& id) {
  std::string text;
  for (const std::byte byte : std::as_bytes(std::span(id.internal))) {
    text += kDigits[std::to_integer<std::size_t>(byte >> 4)];
    text += kDigits[std::to_integer<std::size_t>(byte & std::byte{0xF})];
  }
  return text;
}

ncclUniqueId unique_id_of(std::string_view text) {
  ncclUniqueId id{};
  const auto bytes = std::as_writable_bytes(std::span(id.internal));
  if (text.size() != 2 * bytes.size()) {
    throw Error("this is no id of an NCCL communicator: it has " + std::to_string(text.size()) + " digits, not " +
                std::to_string(2 * bytes.size()));
  }
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(16 * value_of(text[2 * i]) + value_of(text[2 * i + 1]));
  }
  return id;
}

Communicator::Communicator(Trial& trial) : group_(trial.group()) {
  trial.device();  // opened by who asks first; NCCL takes the one that is current
  const ncclUniqueId id = unique_id_of(trial.from_first([] { return text_of(make_unique_id()); }));
  check(ncclCommInitRank(&handle_, group_.ranks, id, group_.rank));
}

// To end a communicator, or to abort it, waits for the other ranks of the machine, for ever where one has failed
// (NVIDIA/nccl#863). The ranks of an arm end one by one, and each process takes along what it holds.
Communicator::~Communicator() {
  if (group_.ranks == 1) static_cast<void>(ncclCommDestroy(handle_));
}

}  // namespace gpulift
