#include "record_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

namespace gpulift {
namespace {

constexpr const char* kLockFile = ".lock";

std::string system_text(int code) { return std::strerror(code); }

/// Of "1.0": 1. Zero for a text that is no version.
int major_version(const std::string& version) {
  int major = 0;
  std::from_chars(version.data(), version.data() + version.size(), major);  // leaves 0 where there is no number
  return major;
}

void refuse_foreign(const nlohmann::ordered_json& record, const std::filesystem::path& file, int line) {
  const std::string version =
      record.contains("schema") && record["schema"].is_string() ? record["schema"].get<std::string>() : "";
  const std::string place = file.filename().string() + ":" + std::to_string(line);
  if (major_version(version) == 0) throw RecordError(place + ": not a record: no \"schema\"; choose another folder");
  if (major_version(version) > major_version(kSchemaVersion)) {
    throw RecordError(place + ": schema " + version + " is newer than this program's " + kSchemaVersion +
                      "; update gpulift or choose another folder");
  }
  for (const char* key : {"technique", "case_id", "launch", "outcome"}) {
    if (!record.contains(key)) throw RecordError(place + ": not a record: no \"" + key + "\"; choose another folder");
  }
}

/// Closes the descriptor.
class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() { close(descriptor_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

bool write_all(int descriptor, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = write(descriptor, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    done += static_cast<std::size_t>(written);
  }
  return fsync(descriptor) == 0;
}

/// All of the file, or a RecordError: what was not read would be cut off as if it had never been whole.
std::string content_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::stringstream content;
  content << stream.rdbuf();
  std::string text = content.str();
  std::error_code failure;
  if (!stream.is_open() || content.bad() || std::filesystem::file_size(file, failure) != text.size()) {
    throw RecordError("cannot read all of " + file.filename().string() + "; choose another folder");
  }
  return text;
}

}  // namespace

void require_finite(const nlohmann::ordered_json& value, const std::string& key) {
  if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    throw std::domain_error("a record cannot hold a number that is not finite: " + key);
  }
  if (value.is_structured()) {
    for (const auto& [name, held] : value.items()) require_finite(held, key.empty() ? name : key + "." + name);
  }
}

RecordFolder::RecordFolder(std::filesystem::path folder, const Warn& warn) : folder_(std::move(folder)) {
  std::error_code failure;
  std::filesystem::create_directories(folder_, failure);
  if (failure) throw RecordError("cannot create the folder " + folder_.string() + ": " + failure.message());
  lock();
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    if (entry.path().extension() == ".jsonl") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  try {
    for (const auto& file : files) read(file, warn);
  } catch (...) {
    unlock();
    throw;
  }
}

RecordFolder::~RecordFolder() { unlock(); }

// The holder removes the file before it lets go, so whoever opened it earlier and then gets the lock may hold a file
// that no longer has its name, beside another process with a new one. Only the file of that name counts.
void RecordFolder::lock() {
  const auto path = folder_ / kLockFile;
  for (;;) {
    lock_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (lock_ < 0) throw RecordError("cannot write to the folder " + folder_.string() + ": " + system_text(errno));
    if (flock(lock_, LOCK_EX | LOCK_NB) != 0) {
      const int code = errno;
      close(lock_);
      if (code != EWOULDBLOCK)
        throw RecordError("cannot lock the folder " + folder_.string() + ": " + system_text(code));
      throw RecordError("another run is writing to " + folder_.string() + "; wait for it or choose another folder");
    }
    struct stat held{};
    struct stat named{};
    const bool same = fstat(lock_, &held) == 0 && stat(path.c_str(), &named) == 0 && held.st_dev == named.st_dev &&
                      held.st_ino == named.st_ino;
    if (same) return;
    close(lock_);
  }
}

void RecordFolder::unlock() {
  unlink((folder_ / kLockFile).c_str());  // where it cannot be removed it stays, and does no harm
  close(lock_);
}

void RecordFolder::read(const std::filesystem::path& file, const Warn& warn) {
  const std::string text = content_of(file);
  std::size_t begin = 0;
  for (int line = 1; begin < text.size(); ++line) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) {
      std::filesystem::resize_file(file, begin);
      warn(file.filename().string() + ": dropped its last line, which was cut off");
      return;
    }
    const auto record = nlohmann::ordered_json::parse(text.substr(begin, end - begin), nullptr, false);
    if (!record.is_object()) {
      throw RecordError(file.filename().string() + ":" + std::to_string(line) +
                        ": not a JSON object; choose another folder");
    }
    refuse_foreign(record, file, line);
    records_.push_back(record);
    begin = end + 1;
  }
}

void RecordFolder::append(const nlohmann::ordered_json& record) {
  require_finite(record);
  std::string name = record.at("technique");
  std::replace(name.begin(), name.end(), '/', '.');
  const auto path = folder_ / (name + ".jsonl");
  const File file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (file.get() < 0) throw WriteError("cannot write " + path.filename().string() + ": " + system_text(errno));
  const off_t before = lseek(file.get(), 0, SEEK_END);
  if (!write_all(file.get(), record.dump() + "\n")) {
    const int code = errno;
    const bool cut = ftruncate(file.get(), before) == 0;
    throw WriteError("cannot write " + path.filename().string() + ": " + system_text(code) +
                     "; everything measured before is kept: make room and run again to go on" +
                     (cut ? "" : " (the next run drops the line that was cut off)"));
  }
  records_.push_back(record);
}

}  // namespace gpulift
