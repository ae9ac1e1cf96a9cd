#include "module_loader.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>

#include "core/harness/abi_tag.hpp"
#include "core/harness/usable_folder.hpp"
#include "trial.hpp"

namespace gpulift {
namespace {

// A module is not unloaded: the libraries it brought (CUDA, OpenMP) do not survive that, and the process ends soon.
int keep_loaded(void* /*library*/) { return 0; }

/// What the loader said, without the folder of the file: this goes into records.
std::string without_folder(std::string text, const std::filesystem::path& file) {
  const std::string folder = file.parent_path().string() + "/";
  if (const auto place = text.find(folder); place != std::string::npos) text.erase(place, folder.size());
  return text;
}

/// The library that the loader looked for in vain; empty where it says something else.
std::string missing_library(const std::string& said) {
  const auto end = said.find(": cannot open shared object file");
  return end == std::string::npos || said.find('/') < end ? "" : said.substr(0, end);
}

/// Opens it from the first of the folders in GPULIFT_LIBRARIES that has it. The loader takes a library that is open for
/// every one of its name.
bool open_from_folders(const std::string& library) {
  const char* named = std::getenv("GPULIFT_LIBRARIES");
  std::istringstream folders(named == nullptr ? "" : named);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (dlopen((std::filesystem::path(folder) / library).c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr) return true;
  }
  return false;
}

/// Opens what the module needs, library by library, as the loader names what it lacks. Throws Skipped where one is not
/// to be had.
void* open_with_libraries(const std::filesystem::path& file, const std::string& name) {
  for (std::string lacked;;) {
    if (void* const opened = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return opened;
    const std::string said = dlerror();
    const std::string library = missing_library(said);
    if (library.empty()) throw ModuleError(name + " is no module: " + without_folder(said, file) + "; build it again");
    if (library == lacked || !open_from_folders(library))
      throw Skipped(library + " is not there", "install torch for CUDA 13, which brings it");
    lacked = library;
  }
}

/// A private copy that goes when the object goes; a loaded library outlives its file.
class TemporaryCopy {
 public:
  explicit TemporaryCopy(const std::filesystem::path& file) {
    std::string pattern = (temporary_folder().path / "gpulift-module-XXXXXX").string();
    const int descriptor = mkstemp(pattern.data());
    if (descriptor < 0) throw ModuleError("cannot make a temporary file; set TMPDIR to a folder with room");
    close(descriptor);
    path_ = pattern;
    std::error_code failure;
    std::filesystem::copy_file(file, path_, std::filesystem::copy_options::overwrite_existing, failure);
    if (failure) {
      std::filesystem::remove(path_);
      throw ModuleError("cannot copy " + file.filename().string() +
                        " of the base to the folder for temporary files: " + failure.message());
    }
  }
  ~TemporaryCopy() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  TemporaryCopy(const TemporaryCopy&) = delete;
  TemporaryCopy& operator=(const TemporaryCopy&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace

const char* own_abi_tag() { return kAbiTag; }

Module::Module(const std::filesystem::path& file) : Module(file, file.filename().string()) {}

Module Module::load_copy(const std::filesystem::path& file) {
  const TemporaryCopy copy(file);
  return {copy.path(), file.filename().string()};
}

Module::Module(const std::filesystem::path& file, const std::string& name)
    : library_(open_with_libraries(std::filesystem::absolute(file), name), keep_loaded) {
  entry_ = static_cast<const ModuleEntry*>(dlsym(library_.get(), kModuleSymbol));
  if (entry_ == nullptr) throw ModuleError(name + " is no gpulift module: it has no symbol " + kModuleSymbol);
  if (std::string(entry_->abi_tag) != kAbiTag) {
    throw ModuleError(name + " was built against other headers or by another compiler (" + entry_->abi_tag + ", not " +
                      kAbiTag + "): build it again");
  }
}

}  // namespace gpulift
