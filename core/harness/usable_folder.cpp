#include "usable_folder.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <stdexcept>
#include <system_error>

namespace gpulift {
namespace {

constexpr const char* kTemporary = "the folder for temporary files";

/// A file in a folder, removed with the object.
class Probe {
 public:
  explicit Probe(const std::filesystem::path& folder) : name_(folder / "gpulift-probe-XXXXXX") {
    file_ = mkstemp(name_.data());
    if (file_ < 0) error_ = errno;
  }
  ~Probe() {
    if (file_ < 0) return;
    close(file_);
    unlink(name_.c_str());
  }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  /// Error of making the file, or of writing more than fits beside its name; 0 where both worked.
  int write_some() {
    constexpr std::array<char, 512> kSome{};
    if (error_ == 0 && write(file_, kSome.data(), kSome.size()) != static_cast<ssize_t>(kSome.size()))
      error_ = errno != 0 ? errno : ENOSPC;
    return error_;
  }

  /// Whether its content may run, as that of a library does.
  bool may_run() const {
    void* const page = mmap(nullptr, 1, PROT_READ | PROT_EXEC, MAP_PRIVATE, file_, 0);
    if (page == MAP_FAILED) return false;
    munmap(page, 1);
    return true;
  }

 private:
  std::string name_;
  int file_ = -1;
  int error_ = 0;
};

}  // namespace

std::string folder_refusal(const std::string& name, int error) {
  switch (error) {
    case ENOENT:
      return name + " does not exist";
    case ENOTDIR:
      return name + " is not a folder";
    case EROFS:
      return name + " is read-only";
    case EACCES:
    case EPERM:
      return name + " may not be written to";
    case ENOSPC:
    case EDQUOT:
      return "the disk of " + name + " is full";
    default:
      return name + " cannot be used: " + std::generic_category().message(error);
  }
}

double free_bytes(const std::filesystem::path& folder) {
  struct statvfs disk{};
  if (statvfs(folder.c_str(), &disk) != 0) return 0;
  return static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
}

std::string why_unusable(const std::filesystem::path& folder, const std::string& name, const FolderNeeds& needs) {
  struct stat found{};
  if (stat(folder.c_str(), &found) != 0) return folder_refusal(name, errno);
  if (!S_ISDIR(found.st_mode)) return folder_refusal(name, ENOTDIR);
  errno = 0;
  Probe probe(folder);
  if (const int error = probe.write_some(); error != 0) return folder_refusal(name, error);
  if (needs.runs_code && !probe.may_run()) return name + " is mounted noexec, and libraries are loaded from it";
  if (free_bytes(folder) < needs.free_bytes) return folder_refusal(name, ENOSPC);
  return {};
}

ChosenFolder temporary_folder() {
  for (const char* name : {"TMPDIR", "TMP", "TEMP", "TEMPDIR"}) {  // as the C++ library does
    const char* const path = std::getenv(name);
    if (path != nullptr && *path != '\0') return {path, name};
  }
  return {"/tmp", ""};
}

void require_temporary_folder(const FolderNeeds& needs) {
  const auto [path, chosen_by] = temporary_folder();
  const auto why = why_unusable(path, kTemporary, needs);
  if (why.empty()) return;
  const auto by = chosen_by.empty() ? "" : chosen_by + ": ";
  throw std::invalid_argument(by + why + " (" + path.string() + "); name another one in " +
                              (chosen_by.empty() ? "TMPDIR" : chosen_by));
}

}  // namespace gpulift
