#include "communicator.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>

#include "core/cuda/error.hpp"

namespace gpulift {
namespace {

/// What `call` throws; empty where it throws no Failure.
template <typename Failure>
std::string thrown_by(const auto& call) {
  try {
    call();
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "";
}

TEST(NcclUniqueId, ComesBackFromItsTextByteForByte) {
  for (const int start : {0, 128}) {  // all 256 values of a byte
    ncclUniqueId id{};
    for (std::size_t i = 0; i < sizeof id.internal; ++i) id.internal[i] = static_cast<char>(start + i);
    const std::string text = text_of(id);
    EXPECT_EQ(text.size(), 2 * sizeof id.internal);
    EXPECT_EQ(text.substr(2, 2), start == 0 ? "01" : "81");
    const ncclUniqueId back = unique_id_of(text);
    EXPECT_EQ(std::memcmp(back.internal, id.internal, sizeof id.internal), 0);
  }
}

TEST(NcclUniqueId, IsNotMadeOfAnotherText) {
  EXPECT_EQ(thrown_by<Error>([] { unique_id_of("abc"); }),
            "this is no id of an NCCL communicator: it has 3 digits, not 256");
  EXPECT_EQ(thrown_by<Error>([] { unique_id_of(std::string(255, '0') + "g"); }),
            "this is no id of an NCCL communicator: it holds what is no hexadecimal digit");
}

TEST(NcclVersion, IsThatOfTheLibraryInUse) {
  const std::string release = std::to_string(NCCL_MAJOR) + "." + std::to_string(NCCL_MINOR) + ".";
  EXPECT_TRUE(nccl_version().starts_with(release)) << nccl_version();
}

TEST(NcclVersion, OfAnotherReleaseIsNotSupported) {
  EXPECT_EQ(nccl_version_of(NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, 3)),
            std::to_string(NCCL_MAJOR) + "." + std::to_string(NCCL_MINOR) + ".3");
  const std::string reason = thrown_by<NotSupported>([] { nccl_version_of(NCCL_VERSION(NCCL_MAJOR, 99, 1)); });
  EXPECT_TRUE(
      reason.starts_with("NCCL " + std::to_string(NCCL_MAJOR) + ".99.1 is in use, but this was built for NCCL "))
      << reason;
  EXPECT_NE(thrown_by<NotSupported>([] { nccl_version_of(NCCL_VERSION(NCCL_MAJOR + 1, NCCL_MINOR, 0)); }), "");
}

TEST(NcclCheck, NamesLibraryErrorMessageAndPlace) {
  EXPECT_NO_THROW(check(ncclSuccess));
  const std::string text = thrown_by<Error>([] { check(ncclInvalidArgument); });
  EXPECT_TRUE(text.starts_with("NCCL: error 4: ")) << text;
  EXPECT_NE(text.find("(communicator_test.cpp:"), std::string::npos) << text;
}

}  // namespace
}  // namespace gpulift
