#include "machine_context.hpp"

#include <gtest/gtest.h>

#include "core/host/record/plausibility.hpp"

namespace gpulift {
namespace {

nlohmann::ordered_json gpu(bool has_c2c) {
  GpuFacts facts;
  facts.pcie_max_generation = 5;
  facts.pcie_max_width = 16;
  facts.has_c2c = has_c2c;
  nlohmann::ordered_json context{{"gpu", {{"architecture", 90}}}};
  add_nvml_facts(context, facts);
  return context.at("gpu");
}

// A GH200 copies at 450 GB/s and more, and has a PCI Express link besides.
TEST(NvmlFactsInAContext, APcieLinkBesideC2cLinksLimitsNothing) {
  EXPECT_FALSE(physical_limit("host_link/h2d", gpu(/*has_c2c=*/true)));
}

TEST(NvmlFactsInAContext, ElseThePcieLinkIsTheLimit) {
  EXPECT_TRUE(physical_limit("host_link/h2d", gpu(/*has_c2c=*/false)));
}

}  // namespace
}  // namespace gpulift
