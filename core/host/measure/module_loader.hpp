#pragma once

#include <filesystem>
#include <memory>
#include <stdexcept>

#include "core/harness/module.hpp"

namespace gpulift {

/// A file is not a module that this program can use. The text names the file and says what to do.
class ModuleError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A loaded technique. Its symbols stay its own (RTLD_LOCAL), so two builds of one technique fit in one process.
class Module {
 public:
  /// Libraries that the loader does not find are taken from the folders in GPULIFT_LIBRARIES. Throws Skipped where one
  /// is in none, ModuleError when the file is missing, is no module, or was built against other headers.
  explicit Module(const std::filesystem::path& file);
  /// Loads a private copy of the file: the loader takes the same file loaded twice for one.
  static Module load_copy(const std::filesystem::path& file);

  const Technique& technique() const { return *entry_->technique; }
  std::string id() const { return entry_->id; }

 private:
  Module(const std::filesystem::path& file, const std::string& name);

  std::unique_ptr<void, int (*)(void*)> library_;
  const ModuleEntry* entry_ = nullptr;
};

/// The tag of the headers and the compiler that this program was built with.
const char* own_abi_tag();

}  // namespace gpulift
