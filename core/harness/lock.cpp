#include "lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <system_error>

#include "usable_folder.hpp"

namespace gpulift {
namespace {

/// Opens or creates the file so that any user can. An existing one is opened without O_CREAT: Linux refuses to create
/// over another user's file in a sticky folder (fs.protected_regular).
int open_shared(const std::filesystem::path& path) {
  constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
  constexpr mode_t kEveryone = 0666;
  int file = open(path.c_str(), kFlags);
  if (file < 0 && errno == ENOENT) {
    file = open(path.c_str(), kFlags | O_CREAT | O_EXCL, kEveryone);
    if (file >= 0) fchmod(file, kEveryone);                              // past the umask
    if (file < 0 && errno == EEXIST) file = open(path.c_str(), kFlags);  // another process was faster
  }
  if (file < 0) throw std::system_error(errno, std::generic_category(), "cannot open lock file " + path.string());
  return file;
}

/// "process 1234, gpulift-bench" from the pid in the file; the holder may not have written it yet.
std::string holder(const std::filesystem::path& path) {
  long pid = 0;
  if (!(std::ifstream(path) >> pid)) return "process unknown";
  std::string command;
  std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/comm"), command);
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
    close(file_);
    if (error != EWOULDBLOCK) throw std::system_error(error, std::generic_category(), "cannot lock " + path.string());
    throw InUse(subject + " is in use by gpulift (" + holder(path) + "); wait for it or stop it");
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
