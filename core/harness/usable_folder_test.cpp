#include "usable_folder.hpp"

#include <gtest/gtest.h>
#include <sys/mount.h>

#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include "testing/said_on_mount.hpp"
#include "testing/temporary_folder.hpp"

namespace gpulift {
namespace {

class UsableFolder : public testing::Test {
 protected:
  std::string why(const std::filesystem::path& folder, const FolderNeeds& needs = {}) const {
    return why_unusable(folder, "the folder", needs);
  }

  const TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
};

TEST_F(UsableFolder, ServesAndIsLeftAsItWas) {
  EXPECT_EQ(why(folder_, {1, /*runs_code=*/true}), "");
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(UsableFolder, HasToBeThere) {
  EXPECT_EQ(why(folder_ / "none"), "the folder does not exist");
  std::ofstream(folder_ / "file") << "text";
  EXPECT_EQ(why(folder_ / "file"), "the folder is not a folder");
}

TEST_F(UsableFolder, NeedsAsMuchRoomAsWasAsked) { EXPECT_EQ(why(folder_, {1e18}), "the disk of the folder is full"); }

TEST_F(UsableFolder, MayBeReadOnly) {
  const auto said = said_on_mount(folder_, "", MS_RDONLY, [&] { return why(folder_); });
  if (!said) GTEST_SKIP() << "nothing can be mounted here";
  EXPECT_EQ(*said, "the folder is read-only");
}

TEST_F(UsableFolder, MayBeFull) {
  const auto said = said_on_mount(folder_, "size=4k", 0, [&] {
    std::ofstream(folder_ / "all") << std::string(4096, 'x');
    return why(folder_, {0});
  });
  if (!said) GTEST_SKIP() << "nothing can be mounted here";
  EXPECT_EQ(*said, "the disk of the folder is full");
}

TEST_F(UsableFolder, MayRunNothing) {
  const auto said =
      said_on_mount(folder_, "", MS_NOEXEC, [&] { return why(folder_) + "; " + why(folder_, {1, true}); });
  if (!said) GTEST_SKIP() << "nothing can be mounted here";
  EXPECT_EQ(*said, "; the folder is mounted noexec, and libraries are loaded from it");
}

class TemporaryFiles : public UsableFolder {
 protected:
  TemporaryFiles() {
    if (const char* usual = std::getenv("TMPDIR")) usual_ = usual;
  }
  ~TemporaryFiles() override {
    unsetenv("TMP");
    usual_.empty() ? unsetenv("TMPDIR") : setenv("TMPDIR", usual_.c_str(), 1);
  }

  std::string refusal() const {
    try {
      require_temporary_folder({});
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  }

  std::string usual_;
};

TEST_F(TemporaryFiles, GoWhereAVariableSays) {
  setenv("TMPDIR", folder_.c_str(), 1);
  EXPECT_EQ(temporary_folder().path, folder_);
  EXPECT_EQ(temporary_folder().chosen_by, "TMPDIR");
  EXPECT_EQ(refusal(), "");
  setenv("TMPDIR", "", 1);
  setenv("TMP", folder_.c_str(), 1);
  EXPECT_EQ(temporary_folder().chosen_by, "TMP");
}

TEST_F(TemporaryFiles, GoToTmpWithoutOne) {
  unsetenv("TMPDIR");
  EXPECT_EQ(temporary_folder().path, "/tmp");
  EXPECT_EQ(temporary_folder().chosen_by, "");
}

TEST_F(TemporaryFiles, OfAFolderThatCannotServeTheVariableIsNamed) {
  const auto none = folder_ / "none";
  setenv("TMPDIR", none.c_str(), 1);
  EXPECT_EQ(refusal(), "TMPDIR: the folder for temporary files does not exist (" + none.string() +
                           "); name another one in TMPDIR");
}

}  // namespace
}  // namespace gpulift
