#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "core/harness/testing/temporary_folder.hpp"

namespace gpulift {

/// A folder with files of one's own in place of /proc, /etc and /sys.
class SystemFolder : public testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }

  const TemporaryFolder temporary_;
  const std::filesystem::path root_ = temporary_.path();
};

}  // namespace gpulift
