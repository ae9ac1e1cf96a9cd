#include "kernels/every_sm.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

using Words = std::vector<std::uint32_t>;

class EverySm : public DeviceTest {
 protected:
  struct Result {
    Words hashes;
    Words visits;
  };
  Result run(std::uint64_t seed, int rounds, unsigned blocks) {
    const auto hashes = upload(Words(blocks, 0));
    const auto visits = upload(Words(kMultiprocessorIds, 0));
    run_on_every_sm(seed, rounds, blocks, hashes.data(), visits.data(), stream());
    return {download(hashes), download(visits)};
  }
  std::uint32_t hash(std::uint64_t seed, int rounds) { return run(seed, rounds, 1).hashes.front(); }
  unsigned blocks_for_all() { return 16 * static_cast<unsigned>(device().multiprocessors()); }
};

TEST_F(EverySm, AllBlocksOfAllLaunchesHaveOneHash) {
  const auto first = run(7, 16, blocks_for_all());
  EXPECT_EQ(first.hashes, Words(blocks_for_all(), first.hashes.front()));
  EXPECT_EQ(run(7, 16, blocks_for_all()).hashes, first.hashes);
}

TEST_F(EverySm, AHashDependsOnSeedAndRounds) {
  EXPECT_EQ(std::set({hash(7, 16), hash(8, 16), hash(7, 15), hash(7, 17), hash(7, 0)}).size(), 5U);
}

// The work lasts long enough that blocks cannot all be dealt to the multiprocessors that are free first.
TEST_F(EverySm, EveryMultiprocessorIsVisitedAndEveryBlockCounted) {
  const auto visits = run(7, 256, blocks_for_all()).visits;
  EXPECT_EQ(std::accumulate(visits.begin(), visits.end(), 0u), blocks_for_all());
  EXPECT_EQ(visits.size() - static_cast<std::size_t>(std::count(visits.begin(), visits.end(), 0u)),
            static_cast<std::size_t>(device().multiprocessors()));
}

TEST(EverySmOperations, GrowWithTheRounds) {
  EXPECT_EQ(every_sm_operations(0), 0);
  EXPECT_EQ(every_sm_operations(20), 20 * every_sm_operations(1));
  EXPECT_EQ(every_sm_operations(1), 256 * (54 + 32 + 256));
}

}  // namespace
}  // namespace gpulift
