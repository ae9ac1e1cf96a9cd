#pragma once

#include <filesystem>
#include <source_location>
#include <string>

#include "core/host/measure/module_loader.hpp"

namespace gpulift {

/// The technique that a test names by where it stands: benches/<theme>/<name>_test.cpp tests the module <theme>.<name>
/// of this build, which is loaded when a test first asks for it.
class ModuleUnderTest {
 public:
  explicit ModuleUnderTest(const std::source_location& test = std::source_location::current()) {
    const std::filesystem::path file = test.file_name();
    const std::string name = file.stem().string();
    const std::string technique = name.substr(0, name.rfind("_test"));
    module_file_ = std::filesystem::path(GPULIFT_BUILD_FOLDER) / "modules" /
                   (file.parent_path().filename().string() + "." + technique + ".so");
  }

  const Technique& operator*() const {
    // Never unloaded: not all libraries behind a module can be.
    if (module_ == nullptr) module_ = new Module(module_file_);
    return module_->technique();
  }
  const Technique* operator->() const { return &**this; }

 private:
  std::filesystem::path module_file_;
  mutable const Module* module_ = nullptr;
};

}  // namespace gpulift
