#include "lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <system_error>

#include "usable_folder.hpp"

namespace gpulift {
namespace {

/// What the open file is where it is no regular file of one name; a hard link would be another file, which is emptied.
std::string what_is_no_lock(int file) {
  struct stat found{};
  if (fstat(file, &found) != 0 || !S_ISREG(found.st_mode)) return "what is no file";
  return found.st_nlink == 1 ? "" : "a link";
}

/// Opens or creates the file so that any user can. An existing one is opened without O_CREAT: Linux refuses to create
/// over another user's file in a sticky folder (fs.protected_regular).
int open_shared(const std::filesystem::path& path) {
  constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;  // a FIFO in its place would wait
  constexpr mode_t kEveryone = 0666;
  int file = open(path.c_str(), kFlags);
  if (file < 0 && errno == ENOENT) {
    file = open(path.c_str(), kFlags | O_CREAT | O_EXCL, kEveryone);
    if (file >= 0) fchmod(file, kEveryone);                              // past the umask
    if (file < 0 && errno == EEXIST) file = open(path.c_str(), kFlags);  // another process was faster
  }
  const int error = errno;
  const auto why = "cannot open lock file " + path.string();
  const std::string in_place = file >= 0         ? what_is_no_lock(file)
                               : error == EISDIR ? "a folder"
                               : error == ELOOP  ? "a link"
                                                 : "";
  if (!in_place.empty()) {  // anybody may have put it there
    if (file >= 0) close(file);
    throw std::runtime_error(why + ": " + in_place +
                             " is in its place; remove it, or name another folder for temporary files by TMPDIR");
  }
  if (file < 0) throw std::system_error(error, std::generic_category(), why);
  return file;
}

/// "process 1234, gpulift-bench" from the pid in the file; the holder may not have written it yet.
std::string holder(int file) {
  std::array<char, 24> digits{};
  if (pread(file, digits.data(), digits.size() - 1, 0) <= 0) return "process unknown";
  const long pid = std::strtol(digits.data(), nullptr, 10);
  std::string command;
  std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/comm"), command);
  // A process names itself, and a terminal would obey.
  const auto is_odd = [](char letter) { return letter < ' ' || letter > '~'; };
  std::replace_if(command.begin(), command.end(), is_odd, '?');
  return "process " + std::to_string(pid) + (command.empty() ? "" : ", " + command);
}

}  // namespace

FileLock::FileLock(const std::filesystem::path& path, const std::string& subject) : file_(open_shared(path)) {
  int result = 0;
  do {
    result = flock(file_, LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  if (result != 0) {
    const int error = errno;
    const std::string by = holder(file_);
    close(file_);
    if (error != EWOULDBLOCK) throw std::system_error(error, std::generic_category(), "cannot lock " + path.string());
    throw InUse(subject + " is in use by gpulift (" + by + "); wait for it or stop it");
  }
  const auto pid = std::to_string(getpid()) + "\n";
  // The pid is only for the message of whoever waits: a full disk must not stop the run.
  if (ftruncate(file_, 0) == 0) static_cast<void>(!pwrite(file_, pid.data(), pid.size(), 0));
}

FileLock::~FileLock() {
  // The file stays: removing it would let two processes lock two files of one name.
  static_cast<void>(!ftruncate(file_, 0));
  close(file_);
}

std::filesystem::path lock_path(const std::string& of) { return temporary_folder().path / ("gpulift-" + of + ".lock"); }

}  // namespace gpulift
