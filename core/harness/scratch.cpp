#include "scratch.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "usable_folder.hpp"

namespace gpulift {
namespace {

constexpr std::string_view kName = "gpulift-XXXXXX";
constexpr std::string_view kPrefix = "gpulift-";
constexpr const char* kMarker = ".gpulift-scratch";    // a locked file in a folder that is in use
constexpr const char* kNotLocked = ".gpulift-making";  // the same before it is locked
constexpr double kLeastFreeBytes = 1 << 20;
constexpr const char* kVariable = "GPULIFT_SCRATCH_DIR";
constexpr const char* kFolder = "the scratch folder";

/// Best effort: what cannot be removed stays.
void remove_tree(const std::filesystem::path& folder) {
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}

/// Removes folders that processes of this user made here and, having been killed, no longer hold. What has no marker is
/// not ours, whatever its name.
void remove_stale(const std::filesystem::path& parent) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(parent, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (name.size() != kName.size() || !name.starts_with(kPrefix)) continue;
    struct stat found{};
    if (lstat(entry->path().c_str(), &found) != 0 || !S_ISDIR(found.st_mode) || found.st_uid != geteuid()) continue;
    const int marker = open((entry->path() / kMarker).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (marker < 0) continue;
    if (flock(marker, LOCK_EX | LOCK_NB) == 0) remove_tree(entry->path());
    close(marker);
  }
}

/// A path of mountinfo, which writes a space as \040.
std::string unescaped(const std::string& text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      plain += static_cast<char>(std::strtol(text.substr(i + 1, 3).c_str(), nullptr, 8));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

bool lies_in(const std::filesystem::path& path, const std::filesystem::path& folder) {
  return std::mismatch(path.begin(), path.end(), folder.begin(), folder.end()).second == folder.end();
}

struct Mount {
  std::string device;  // "259:1"
  std::string filesystem;
};

/// The innermost mount that holds the folder; of those at one place the last, which covers the others.
Mount mount_of(const std::filesystem::path& folder, const std::filesystem::path& mountinfo) {
  Mount innermost;
  std::size_t longest = 0;
  std::ifstream lines(mountinfo);
  for (std::string line; std::getline(lines, line);) {  // "36 35 98:0 /in /at rw,noatime shared:1 - ext3 /dev/sda1 rw"
    std::istringstream words(line);
    std::string id;
    std::string above;
    std::string device;
    std::string inside;
    std::string place;
    words >> id >> above >> device >> inside >> place;
    for (std::string word; words >> word && word != "-";) {
    }
    std::string filesystem;
    if (!(words >> filesystem)) continue;
    const auto point = unescaped(place);
    if (point.size() < longest || !lies_in(folder, point)) continue;
    longest = point.size();
    innermost = {device, filesystem};
  }
  return innermost;
}

/// A partition has no queue of its own, but its disk, in whose folder it lies.
std::optional<bool> is_rotational(const std::filesystem::path& device) {
  for (const auto& queue : {device / "queue", device / ".." / "queue"}) {
    int rotational = 0;
    if (std::ifstream(queue / "rotational") >> rotational) return rotational != 0;
  }
  return {};
}

}  // namespace

DiskFacts disk_facts(const std::filesystem::path& folder, const std::filesystem::path& root) {
  std::error_code error;
  const auto real = std::filesystem::canonical(folder, error);
  if (error) return {};
  const auto mount = mount_of(real, root / "proc/self/mountinfo");
  DiskFacts facts;
  facts.filesystem = mount.filesystem;
  if (!mount.device.empty()) facts.rotational = is_rotational(root / "sys/dev/block" / mount.device);
  facts.in_memory = mount.filesystem == "tmpfs" || mount.filesystem == "ramfs";
  facts.free_bytes = free_bytes(real);
  return facts;
}

nlohmann::ordered_json to_json(const DiskFacts& facts) {
  nlohmann::ordered_json json;
  if (!facts.filesystem.empty()) json["filesystem"] = facts.filesystem;
  if (facts.rotational) json["rotational"] = *facts.rotational;
  json["in_memory"] = facts.in_memory;
  return json;
}

ScratchRoot::ScratchRoot(const std::filesystem::path& chosen) {
  const char* const usual = std::getenv(kVariable);
  const bool by_variable = chosen.empty() && usual != nullptr && *usual != '\0';
  const std::filesystem::path parent = !chosen.empty() ? chosen : by_variable ? usual : "/var/tmp";
  missing_ = make_in(parent);
  if (missing_.empty() || (chosen.empty() && !by_variable)) return;
  throw std::invalid_argument((by_variable ? kVariable : "--scratch") + (": " + missing_) + " (" + parent.string() +
                              ")");
}

ScratchRoot::~ScratchRoot() {
  // A process that was forked off and ends first must leave the folder to its parent.
  if (owner_ == getpid()) remove_tree(path_);
  if (lock_ >= 0) close(lock_);
}

std::string ScratchRoot::make_in(const std::filesystem::path& parent) {
  std::error_code error;
  const auto real = std::filesystem::canonical(parent, error);
  if (error) return folder_refusal(kFolder, error.value());
  if (!std::filesystem::is_directory(real, error)) return folder_refusal(kFolder, ENOTDIR);
  remove_stale(real);  // first: the disk may be full of what they hold
  std::string name = real / kName;
  if (mkdtemp(name.data()) == nullptr) return folder_refusal(kFolder, errno);
  if (free_bytes(name) < kLeastFreeBytes) {
    remove_tree(name);
    return folder_refusal(kFolder, ENOSPC);
  }
  path_ = name;
  owner_ = getpid();
  lock();
  return {};
}

/// Tells other processes that the folder is in use. The kernel releases the lock with this process and those that were
/// forked off it, however they end. A file system without locks leaves no marker: then nobody takes the folder for
/// stale.
void ScratchRoot::lock() {
  const auto before = path_ / kNotLocked;
  lock_ = open(before.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  // Locked before it has its name: no other process ever sees it free.
  const bool is_marked =
      lock_ >= 0 && flock(lock_, LOCK_EX | LOCK_NB) == 0 && rename(before.c_str(), (path_ / kMarker).c_str()) == 0;
  if (!is_marked) unlink(before.c_str());
}

}  // namespace gpulift
