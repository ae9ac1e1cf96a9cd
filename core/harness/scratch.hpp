#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>

#include "json.hpp"

namespace gpulift {

/// What is known of the disk under a folder. Nothing in it tells where on the machine the folder lies.
struct DiskFacts {
  std::string filesystem;          // "ext4"; empty: not known
  std::optional<bool> rotational;  // none: not known, as of a network's or a layered file system
  bool in_memory = false;          // tmpfs or ramfs: no disk at all
  double free_bytes = 0;           // that this user may fill
};

/// Of the disk that holds this folder. `root` is where /proc and /sys lie.
DiskFacts disk_facts(const std::filesystem::path& folder, const std::filesystem::path& root = "/");

/// "scratch" of a record: filesystem, rotational, in_memory. Unknown facts are absent.
nlohmann::ordered_json to_json(const DiskFacts& facts);

/// A folder of this process for files that techniques write, removed with all that is in it at the latest when the next
/// process makes one at the same place: a process that is killed leaves its own behind.
class ScratchRoot {
 public:
  /// Makes gpulift-XXXXXX in the chosen folder or, where that is empty, in $GPULIFT_SCRATCH_DIR or else /var/tmp. A
  /// folder that somebody chose and that cannot be used throws std::invalid_argument, which names what chose it; the
  /// usual one only leaves missing().
  explicit ScratchRoot(const std::filesystem::path& chosen);
  /// The same in shared memory, /dev/shm, where it can be: of one that cannot there is only missing().
  static ScratchRoot in_shared_memory() { return ScratchRoot(InSharedMemory()); }
  ~ScratchRoot();
  ScratchRoot(const ScratchRoot&) = delete;
  ScratchRoot& operator=(const ScratchRoot&) = delete;

  /// Absolute; empty where there is none.
  const std::filesystem::path& path() const { return path_; }
  /// Why there is none, in one line without a path, fit for a record; empty where there is one.
  const std::string& missing() const { return missing_; }

 private:
  struct InSharedMemory {};
  explicit ScratchRoot(InSharedMemory) { missing_ = make_in("/dev/shm"); }
  std::string make_in(const std::filesystem::path& parent);
  void lock();

  std::filesystem::path path_;
  std::string missing_;
  int lock_ = -1;
  pid_t owner_ = -1;
};

}  // namespace gpulift
