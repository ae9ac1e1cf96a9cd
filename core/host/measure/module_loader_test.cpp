#include "module_loader.hpp"

#include <gmock/gmock.h>

#include <cstdlib>

#include "core/host/record/catalogue.hpp"
#include "trial.hpp"

namespace gpulift {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

const std::filesystem::path kBuild = GPULIFT_BUILD_FOLDER;

auto loading(const std::filesystem::path& file) {
  return [file] { const Module module(file); };
}

TEST(Module, ShowsItsTechnique) {
  const Module module(kBuild / "testing-modules" / "testing.fine.so");
  EXPECT_EQ(module.id(), "testing/fine");
  EXPECT_THAT(module.technique().arms, testing::ElementsAre("baseline", "twice"));
}

TEST(Module, SaysTheSameAsItsManifest) {
  const auto folder = kBuild / "testing-modules";
  for (const TechniqueInfo& info : read_catalogue({folder})) {
    if (info.is_script()) continue;
    const Module module(info.module);
    auto manifest = info.manifest;
    manifest.erase("source");  // of the build, not of the technique
    EXPECT_EQ(manifest_of(module.id(), own_abi_tag(), module.technique()), manifest) << info.id;
  }
}

TEST(Module, TwoBuildsOfOneTechniqueLiveSideBySide) {
  const Module head(kBuild / "testing-duet" / "head" / "testing.planted_host.so");
  const Module base = Module::load_copy(kBuild / "testing-duet" / "base" / "testing.planted_host.so");
  EXPECT_NE(&head.technique(), &base.technique());
  EXPECT_EQ(head.id(), base.id());
}

TEST(Module, TheSameFileTwiceIsTwoModules) {
  const auto file = kBuild / "testing-modules" / "testing.fine.so";
  const Module head(file);
  const Module base = Module::load_copy(file);
  EXPECT_NE(&head.technique(), &base.technique());
}

TEST(Module, BuiltAgainstOtherHeadersIsRefused) {
  EXPECT_THAT(loading(kBuild / "testing-odd" / "testing_other_tag.so"),
              ThrowsMessage<ModuleError>(AllOf(HasSubstr("testing_other_tag.so"), HasSubstr("another tag"),
                                               HasSubstr(own_abi_tag()), HasSubstr("build it again"))));
}

TEST(Module, WithoutTheEntryPointIsRefused) {
  EXPECT_THAT(loading(kBuild / "testing-odd" / "testing_no_module.so"),
              ThrowsMessage<ModuleError>(HasSubstr("no symbol gpulift_module")));
}

TEST(Module, ThatIsMissingOrNoLibraryIsNamedWithoutItsFolder) {
  for (const char* name : {"missing.so", "CMakeCache.txt"}) {
    EXPECT_THAT(loading(kBuild / name),
                ThrowsMessage<ModuleError>(AllOf(HasSubstr(name), Not(HasSubstr(kBuild.string())))));
  }
}

TEST(Module, WithoutALibraryThatItNeedsIsSkippedUntilAFolderHasIt) {
  const auto folder = kBuild / "testing-odd";
  const auto load = loading(folder / "testing_needs_library.so");
  EXPECT_THAT(load, ThrowsMessage<Skipped>("libtesting_library.so is not there"));
  const std::string folders = "/nowhere:" + (folder / "elsewhere").string();
  setenv("GPULIFT_LIBRARIES", folders.c_str(), 1);
  EXPECT_THAT(load, ThrowsMessage<ModuleError>(HasSubstr("no symbol gpulift_module")));
  unsetenv("GPULIFT_LIBRARIES");
}

TEST(Module, ACopyOfWhatIsMissingIsNamed) {
  EXPECT_THAT([] { Module::load_copy(kBuild / "missing.so"); }, ThrowsMessage<ModuleError>(HasSubstr("missing.so")));
}

}  // namespace
}  // namespace gpulift
