#include "transport.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <set>
#include <string_view>
#include <system_error>

namespace gpulift {
namespace {

constexpr std::string_view kVia = " via ";

/// "NET/IB" of "NET/IB/0/GDRDMA": the parts ahead of the first number.
std::string_view without_numbers(std::string_view transport) {
  for (std::size_t slash = transport.find('/'); slash != std::string_view::npos;
       slash = transport.find('/', slash + 1)) {
    const bool ends = slash + 1 == transport.size();
    if (ends || std::isalpha(static_cast<unsigned char>(transport[slash + 1])) == 0) return transport.substr(0, slash);
  }
  return transport;
}

}  // namespace

std::string transport_in(const std::string& log) {
  std::set<std::string_view> transports;
  const std::string_view all = log;
  for (std::size_t found = all.find(kVia); found != std::string_view::npos; found = all.find(kVia, found + 1)) {
    const std::string_view rest = all.substr(found + kVia.size());
    const std::string_view transport = without_numbers(rest.substr(0, rest.find_first_of(" \t\n")));
    if (!transport.empty()) transports.insert(transport);
  }
  std::string told;
  for (const std::string_view transport : transports) told += (told.empty() ? "" : ", ") + std::string(transport);
  return told.empty() ? "not told" : told;
}

TransportLog::TransportLog() : memory_(memfd_create("nccl", MFD_CLOEXEC)) {
  if (memory_ < 0) throw std::system_error(errno, std::generic_category(), "memfd_create");
  setenv("NCCL_DEBUG", "INFO", 1);
  setenv("NCCL_DEBUG_SUBSYS", "INIT,NET", 1);
  setenv("NCCL_DEBUG_FILE", ("/proc/self/fd/" + std::to_string(memory_)).c_str(), 1);
}

TransportLog::~TransportLog() { close(memory_); }

std::string TransportLog::told() const {
  struct stat facts{};
  if (fstat(memory_, &facts) != 0) return transport_in("");
  std::string log(static_cast<std::size_t>(facts.st_size), '\0');
  const ssize_t got = pread(memory_, log.data(), log.size(), 0);
  log.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return transport_in(log);
}

}  // namespace gpulift
