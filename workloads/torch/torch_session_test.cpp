#include "torch_session.hpp"

#include <c10/cuda/CUDACachingAllocator.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <stdexcept>
#include <string>

#include "core/cuda/error.hpp"
#include "core/testing/checking_trial.hpp"
#include "core/testing/host_checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

TEST(TorchSessionOnAHost, TakesTheHostAndSaysSo) {
  HostCheckingTrial trial(Point{});
  const TorchSession session(trial);
  EXPECT_FALSE(session.on_device());
  EXPECT_EQ(trial.notes().at("device"), "cpu");
  EXPECT_FALSE(trial.versions().at("libtorch").empty());
  EXPECT_EQ(trial.notes().at("torch_threads"), std::to_string(at::get_num_threads()));
}

// Cases of one launch share a process: what runs after a case of torch still means all cores by "all cores".
TEST(TorchSessionOnAHost, LeavesOpenMpsThreadsAsTheyWere) {
  constexpr int kThreads = 64;  // more than torch takes, wherever this runs
  omp_set_num_threads(kThreads);
  {
    HostCheckingTrial trial(Point{});
    const TorchSession session(trial);
    at::set_num_threads(1);  // as beside a GPU
    if (omp_get_max_threads() != 1) GTEST_SKIP() << "torch has an OpenMP of its own: there is nothing to give back";
  }
  EXPECT_EQ(omp_get_max_threads(), kThreads);
}

TEST(TorchSessionOnAHost, GivesAnArmItsStep) {
  HostCheckingTrial trial(Point{});
  const TorchSession session(trial);
  int made = 0;
  int steps = 0;
  const auto make = [&]() -> TorchSession::Work {
    ++made;
    return [&] { ++steps; };
  };
  const Arm arm = session.arm("arm", make, {.cost = Cost{.items = 2}, .tolerance = 0.5});
  EXPECT_EQ(arm.clock, Clock::kUnheld);
  EXPECT_EQ(arm.cost->items, 2);
  EXPECT_EQ(arm.tolerance, 0.5);
  EXPECT_FALSE(arm.metrics) << "a host has no device memory";
  const Step step = arm.make().step();
  step(nullptr);
  step(nullptr);
  EXPECT_EQ(made, 1);
  EXPECT_EQ(steps, 2);
}

// Torch's own backtrace names folders of the build machine, which have no place in records.
TEST(TorchSessionOnAHost, SaysWhatTorchSaysWithoutItsBacktrace) {
  HostCheckingTrial trial(Point{});
  const TorchSession session(trial);
  try {
    session.run(nullptr, [] { torch::ones({2}) + torch::ones({3}); });
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("size of tensor a (2)"), std::string::npos) << text;
    EXPECT_EQ(text.find("frame #"), std::string::npos) << text;
  }
}

TEST(TorchSessionOnAHost, KnowsExhaustionAndMissingKernelsByTheText) {
  HostCheckingTrial trial(Point{});
  const TorchSession session(trial);
  EXPECT_THROW(session.run(nullptr, [] { torch::empty({std::int64_t{1} << 60}); }), OutOfMemory);
  const auto failing = [](const char* text) { return [text] { TORCH_CHECK(false, text); }; };
  EXPECT_THROW(session.run(nullptr, failing("CUDA error: out of memory")), OutOfMemory);
  EXPECT_THROW(session.run(nullptr, failing("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling")), OutOfMemory);
  EXPECT_THROW(session.run(nullptr, failing("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED")), NotSupported);
  EXPECT_THROW(session.run(nullptr, failing("GET was unable to find an engine to execute")), NotSupported);
  EXPECT_THROW(session.run(nullptr, failing("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED")), std::runtime_error);
}

TEST(TorchSessionOnAHost, SaysWhatWasExhaustedWithoutTorchsAdvice) {
  HostCheckingTrial trial(Point{});
  const TorchSession session(trial);
  try {
    session.run(nullptr, [] {
      TORCH_CHECK(false, "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1.00 GiB free. If reserved but ",
                  "unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF. See https://pytorch.org");
    });
    FAIL() << "nothing was thrown";
  } catch (const OutOfMemory& error) {
    EXPECT_STREQ(error.what(), "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1.00 GiB free.");
  }
}

class TorchSessionOnADevice : public DeviceTest {};

TEST_F(TorchSessionOnADevice, CountsMemoryOfAStep) {
  CheckingTrial trial(device(), {});
  const TorchSession session(trial);
  ASSERT_TRUE(session.on_device());
  constexpr std::int64_t kFloats = std::int64_t{1} << 24;
  const auto make = [&]() -> TorchSession::Work {
    const torch::Tensor kept = torch::ones({kFloats}, torch::TensorOptions(session.device()));
    return [kept] {
      const torch::Tensor doubled = kept * 2;
      kept.copy_(doubled - kept);
    };
  };
  trial.check({.meaning = "none", .error = [](StreamHandle) { return 0.0; }});
  trial.compare({session.arm("arm", make, {})});
  const auto& metrics = trial.results().at("arm").metrics;
  EXPECT_EQ(metrics.at("peak_allocated_bytes"), 3 * 4.0 * kFloats);
  EXPECT_GE(metrics.at("peak_reserved_bytes"), metrics.at("peak_allocated_bytes"));
}

TEST_F(TorchSessionOnADevice, ChargesNoArmWithTheWorkspacesOfCublas) {
  CheckingTrial trial(device(), {});
  const TorchSession session(trial);
  constexpr std::int64_t kWidth = 1024;
  const auto make = [&]() -> TorchSession::Work {
    const torch::Tensor factor = torch::ones({kWidth, kWidth}, torch::TensorOptions(session.device()));
    return [factor] { torch::mm(factor, factor); };
  };
  trial.check({.meaning = "none", .error = [](StreamHandle) { return 0.0; }});
  trial.compare({session.arm("first", make, {}), session.arm("second", make, {})});
  for (const auto& [name, result] : trial.results()) {
    EXPECT_EQ(result.metrics.at("peak_allocated_bytes"), 2 * 4.0 * kWidth * kWidth) << name;
  }
}

TEST_F(TorchSessionOnADevice, AddsTheBytesOfAGraph) {
  CheckingTrial trial(device(), {});
  const TorchSession session(trial);
  const auto make = [&]() -> TorchSession::Work {
    const torch::Tensor kept = torch::ones({1 << 20}, torch::TensorOptions(session.device()));
    return [kept] { kept.sum().item<float>(); };
  };
  trial.check({.meaning = "none", .error = [](StreamHandle) { return 0.0; }});
  trial.compare({session.arm("arm", make, {.graph_bytes = [] { return 1e9; }})});
  const auto& metrics = trial.results().at("arm").metrics;
  EXPECT_GE(metrics.at("peak_allocated_bytes"), 1e9 + 4 * (1 << 20));
}

TEST_F(TorchSessionOnADevice, LeavesNothingOfItsMemoryBehind) {
  const auto reserved_bytes = [&] {
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(0);
    return stats.reserved_bytes[static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE)].current;
  };
  CheckingTrial trial(device(), {});
  {
    const TorchSession session(trial);
  }
  const auto before_bytes = reserved_bytes();
  {
    const TorchSession session(trial);
    session.run(nullptr, [&] { torch::zeros({1 << 28}, torch::TensorOptions(session.device())); });
    EXPECT_GE(reserved_bytes(), before_bytes + (std::int64_t{4} << 28));
  }
  EXPECT_EQ(reserved_bytes(), before_bytes);
}

TEST_F(TorchSessionOnADevice, SaysThatMemoryIsExhausted) {
  CheckingTrial trial(device(), {});
  const TorchSession session(trial);
  const auto exhausting = [&] { torch::empty({std::int64_t{1} << 44}, torch::TensorOptions(session.device())); };
  EXPECT_THROW(session.run(nullptr, exhausting), OutOfMemory);
}

}  // namespace
}  // namespace gpulift
