#include "module_loader.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include "core/harness/abi_tag.hpp"
#include "core/harness/usable_folder.hpp"

namespace gpulift {
namespace {

// A module is not unloaded: the libraries it brought (CUDA, OpenMP) do not survive that, and the process ends soon.
int keep_loaded(void* /*library*/) { return 0; }

/// What the loader says, without the folder of the file: this goes into records.
std::string loader_message(const std::filesystem::path& file) {
  std::string text = dlerror();
  const std::string folder = std::filesystem::absolute(file).parent_path().string() + "/";
  if (const auto place = text.find(folder); place != std::string::npos) text.erase(place, folder.size());
  return text;
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
    : library_(dlopen(std::filesystem::absolute(file).c_str(), RTLD_NOW | RTLD_LOCAL), keep_loaded) {
  if (library_ == nullptr) {
    throw ModuleError(name + " is no module, or a library that it needs is missing: " + loader_message(file) +
                      "; build it again");
  }
  entry_ = static_cast<const ModuleEntry*>(dlsym(library_.get(), kModuleSymbol));
  if (entry_ == nullptr) throw ModuleError(name + " is no gpulift module: it has no symbol " + kModuleSymbol);
  if (std::string(entry_->abi_tag) != kAbiTag) {
    throw ModuleError(name + " was built against other headers or by another compiler (" + entry_->abi_tag + ", not " +
                      kAbiTag + "): build it again");
  }
}

}  // namespace gpulift
