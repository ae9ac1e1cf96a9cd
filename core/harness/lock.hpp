#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>

namespace gpulift {

/// Another process holds the lock. The text names what is in use and by which process.
class InUse : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An exclusive lock on a file, held for the life of the object. The kernel releases it with the process, however that
/// ends. Child processes do not inherit it across exec; one that is forked without exec would keep it.
class FileLock {
 public:
  /// `subject` is what the lock stands for, e.g. "GPU 1a2b3c4d". Throws InUse when another process (or another FileLock
  /// of this one) holds it, std::runtime_error when the file cannot be used.
  FileLock(const std::filesystem::path& path, const std::string& subject);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int file_;
};

/// "gpulift-<of>.lock" in the folder for temporary files; `of` is a card's id, or "host".
std::filesystem::path lock_path(const std::string& of);

}  // namespace gpulift
