#include "sdp_backend.hpp"

#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/utils.h>

#include <map>
#include <string>

#include "gpt.hpp"
#include "precision.hpp"

namespace gpulift {
namespace {

using Forms = std::map<std::string, int>;

constexpr AttentionShape kShape{.rows = 2, .heads = 4, .tokens = 32, .head_width = 16};

TEST(SdpBackend, TheGraphTellsWhichOneRan) {
  const BackendsRestored restored;
  torch::manual_seed(1);
  Gpt model(gpt_toy_config());
  const Batch batch = gpt_toy_workload(2).make_batch();
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    const Autocast autocast(precision, torch::kCPU);
    model.use_attention(Attention::kExplicit);
    EXPECT_EQ(attention_forms_behind(model.loss(batch)), (Forms{{"explicit", 2}}));
    model.use_attention(Attention::kSdpa);
    use_only(SdpBackend::kMath);
    EXPECT_EQ(attention_forms_behind(model.loss(batch)), (Forms{{"math", 2}}));
    use_only(SdpBackend::kFlash);
    EXPECT_EQ(attention_forms_behind(model.loss(batch)), (Forms{{"flash", 2}}));
  }
}

TEST(SdpBackend, OneThatTheHostLacksIsNamedAndNeverReplaced) {
  const BackendsRestored restored;
  EXPECT_EQ(why_not(SdpBackend::kMath, kShape, torch::kFloat32, torch::kCPU), "");
  EXPECT_EQ(why_not(SdpBackend::kFlash, kShape, torch::kBFloat16, torch::kCPU), "");
  EXPECT_NE(why_not(SdpBackend::kCudnn, kShape, torch::kBFloat16, torch::kCPU), "");
  EXPECT_NE(why_not(SdpBackend::kMemoryEfficient, kShape, torch::kBFloat16, torch::kCPU), "");
  Gpt model(gpt_toy_config());
  const Batch batch = gpt_toy_workload(2).make_batch();
  EXPECT_NO_THROW(model.loss(batch)) << "to ask changes nothing";
  use_only(SdpBackend::kCudnn);
  EXPECT_ANY_THROW(model.loss(batch));
}

TEST(SdpBackend, AnyRunsAgainAfterwards) {
  {
    const BackendsRestored restored;
    use_only(SdpBackend::kCudnn);
  }
  Gpt model(gpt_toy_config());
  EXPECT_NO_THROW(model.loss(gpt_toy_workload(2).make_batch()));
}

TEST(SdpBackend, TheDeviceRunsTheOneThatIsLeft) {
  if (!torch::cuda::is_available()) GTEST_SKIP();
  const BackendsRestored restored;
  const std::map<SdpBackend, std::string> names{{SdpBackend::kMath, "math"},
                                                {SdpBackend::kMemoryEfficient, "memory_efficient"},
                                                {SdpBackend::kFlash, "flash"},
                                                {SdpBackend::kCudnn, "cudnn"}};
  const torch::Device device(torch::kCUDA, 0);
  Gpt model(gpt_toy_config());
  model.to(device);
  const Batch batch = to_device(gpt_toy_workload(2).make_batch(), device);
  const Autocast autocast(Precision::kBf16, device);
  for (const auto& [backend, name] : names) {
    if (!why_not(backend, kShape, torch::kBFloat16, device).empty()) continue;  // an older card
    use_only(backend);
    EXPECT_EQ(attention_forms_behind(model.loss(batch)), (Forms{{name, 2}}));
  }
  EXPECT_NE(why_not(SdpBackend::kFlash, kShape, torch::kFloat32, device), "");
}

}  // namespace
}  // namespace gpulift
