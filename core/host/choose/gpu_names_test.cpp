#include "gpu_names.hpp"

#include <gmock/gmock.h>

#include <stdexcept>

namespace gpulift {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<std::string> three() {
  return {"GPU-3a2b1c4d-0011-2233-4455-66778899aabb", "GPU-3a2b9999-0011-2233-4455-66778899aabb",
          "GPU-80831f50-0011-2233-4455-66778899aabb"};
}

std::vector<std::string> nobody_asks() { throw std::logic_error("an index needs no look at the cards"); }

TEST(GpuNames, AreIndices) { EXPECT_THAT(gpu_indices({"1", "0"}, nobody_asks), ElementsAre(1, 0)); }

TEST(GpuNames, AreUuidsOrTheirStartsInAnyCase) {
  EXPECT_THAT(gpu_indices({three()[1], "GPU-8083", "0"}, three), ElementsAre(1, 2, 0));
  EXPECT_THAT(gpu_indices({"GPU-3A2B1"}, three), ElementsAre(0));
}

TEST(GpuNames, AreAllThatAreVisible) {
  EXPECT_THAT(gpu_indices({"all"}, three), ElementsAre(0, 1, 2));
  EXPECT_THAT([] { gpu_indices({"all"}, [] { return std::vector<std::string>(); }); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("--gpus all: no GPU is visible")));
  EXPECT_THROW(gpu_indices({"all", "0"}, three), std::invalid_argument);
}

TEST(GpuNames, OfNoCardOrOfSeveralAreRefused) {
  EXPECT_THAT([] { gpu_indices({"GPU-77"}, three); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("--gpus GPU-77: no visible GPU has this UUID")));
  EXPECT_THAT([] { gpu_indices({"GPU-3a2b"}, three); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("several GPUs begin so")));
}

TEST(GpuNames, NeedGpus) {
  EXPECT_THAT([] { gpu_indices({"GPU-77"}, [] { return std::vector<std::string>(); }); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("no GPU is visible")));
}

TEST(GpuNames, OfAMigInstanceSayHowItIsChosen) {
  EXPECT_THAT([] { gpu_indices({"MIG-1"}, three); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("CUDA_VISIBLE_DEVICES=MIG-1")));
}

class WrongGpuName : public testing::TestWithParam<const char*> {};

TEST_P(WrongGpuName, IsRefused) {
  EXPECT_THAT([] { gpu_indices({GetParam()}, nobody_asks); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("name a GPU by its index")));
}

INSTANTIATE_TEST_SUITE_P(Names, WrongGpuName, testing::Values("", "-1", "1x", "0x1", "99999999999", "H200", "GPU-"));

}  // namespace
}  // namespace gpulift
