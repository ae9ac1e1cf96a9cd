#pragma once

#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "json.hpp"

namespace gpulift {

/// major.minor of the record; results/schema/ holds the schema of the same version. A minor version adds keys, a major
/// one changes or removes them.
inline constexpr const char* kSchemaVersion = "1.15";
/// How measurements are made; a change makes older results incomparable (results/schema/CHANGELOG.md).
inline constexpr const char* kMethodVersion = "1";

/// The folder of records cannot be used: unwritable, foreign, or written by a newer version.
class RecordError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A record could not be written, mostly since the disk is full; what was written before is kept.
class WriteError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// One folder of JSON-lines files, <theme>.<name>.jsonl, with this process as its only writer.
class RecordFolder {
 public:
  using Warn = std::function<void(const std::string&)>;

  /// Creates the folder if needed and reads what it holds. A last line without its end (the writer was killed) is
  /// dropped from the file, and `warn` says so. The lock is a file, which goes with the object. Throws RecordError.
  RecordFolder(std::filesystem::path folder, const Warn& warn);
  ~RecordFolder();
  RecordFolder(const RecordFolder&) = delete;
  RecordFolder& operator=(const RecordFolder&) = delete;

  const std::vector<nlohmann::ordered_json>& records() const { return records_; }
  /// Appends one line and flushes it to the disk. Throws WriteError when that fails, and then the file ends with its
  /// last whole line.
  void append(const nlohmann::ordered_json& record);

 private:
  void lock();
  void unlock();
  void read(const std::filesystem::path& file, const Warn& warn);

  std::filesystem::path folder_;
  int lock_ = -1;
  std::vector<nlohmann::ordered_json> records_;
};

/// Throws std::domain_error naming the key of the first number that is not finite: JSON has none, and the library would
/// write null.
void require_finite(const nlohmann::ordered_json& value, const std::string& key = "");

}  // namespace gpulift
