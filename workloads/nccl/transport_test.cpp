#include "transport.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

namespace gpulift {
namespace {

constexpr const char* kLog =
    "host:1:2 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0/GDRDMA\n"
    "host:1:2 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[0] [send] via NET/IB/1\n"
    "host:1:2 [0] NCCL INFO Channel 02 : 0[0] -> 1[1] via P2P/CUMEM/read\n"
    "host:1:2 [0] NCCL INFO Connected all rings\n";

TEST(Transport, IsWhatNcclSaysOfItsChannelsWithoutTheirNumbers) {
  EXPECT_EQ(transport_in(kLog), "NET/IB, P2P/CUMEM/read");
  EXPECT_EQ(transport_in("a via NET/Socket/0"), "NET/Socket");
  EXPECT_EQ(transport_in("a via "), "not told");
  EXPECT_EQ(transport_in(""), "not told");
}

TEST(Transport, IsReadOfTheFileThatNcclIsTold) {
  const TransportLog log;
  EXPECT_EQ(log.told(), "not told");
  std::ofstream(std::getenv("NCCL_DEBUG_FILE")) << kLog;
  EXPECT_EQ(log.told(), "NET/IB, P2P/CUMEM/read");
}

}  // namespace
}  // namespace gpulift
