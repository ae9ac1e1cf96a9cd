#include "lstm.hpp"

#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/utils.h>

#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "training.hpp"

namespace gpulift {
namespace {

class Lstm : public testing::Test {
 protected:
  // Threads that wait for one another make toy sizes slow where others compute too.
  static void SetUpTestSuite() { torch::set_num_threads(1); }
};

TEST_F(Lstm, HasTheNamesOfPythonsModule) {
  std::set<std::string> names;
  for (const auto& parameter : lstm_toy_workload(2).make_model(torch::kCPU)->named_parameters())
    names.insert(parameter.key());
  EXPECT_EQ(names,
            (std::set<std::string>{"embedding.weight", "lstm.weight_ih_l0", "lstm.weight_hh_l0", "lstm.bias_ih_l0",
                                   "lstm.bias_hh_l0", "lstm.weight_ih_l1", "lstm.weight_hh_l1", "lstm.bias_ih_l1",
                                   "lstm.bias_hh_l1", "decoder.weight", "decoder.bias"}));
}

TEST_F(Lstm, TargetsAreTheNextTokens) {
  const Batch batch = lstm_workload(3).make_batch();
  EXPECT_EQ(batch.input.sizes(), (std::vector<std::int64_t>{3, 128}));
  EXPECT_TRUE(torch::equal(batch.input.narrow(1, 1, 127), batch.target.narrow(1, 0, 127)));
}

TEST_F(Lstm, FlopsAreThoseOfItsProducts) {
  // Per token and layer 8 H^2 multiply-adds, with H = 512; then 512 x 10000. Three products, two flops each.
  const Workload workload = lstm_workload(4);
  EXPECT_DOUBLE_EQ(workload.flops, 6.0 * 4 * 128 * (2 * 8 * 512 * 512 + 512 * 10'000));
  EXPECT_EQ(workload.items, 4 * 128);
}

void expect_learning(Precision precision) {
  TrainingRun run(lstm_toy_workload(4), {.precision = precision}, torch::kCPU, 1);
  const auto losses = losses_of(run, 30);
  EXPECT_NEAR(losses.front(), std::log(50.0), 0.3);
  EXPECT_LT(losses.back(), losses.front() - 0.1);
}

/// Of FP32 inputs under autocast torch 2.11 asks oneDNN for a BF16 LSTM, though it has none for this CPU.
bool has_bf16_lstm() {
  return c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_is_mkldnn_bf16_supported", "").typed<bool()>().call();
}

TEST_F(Lstm, LearnsInFp32AndPureBf16) {
  expect_learning(Precision::kFp32);
  expect_learning(Precision::kPureBf16);
}

TEST_F(Lstm, LearnsUnderAutocast) {
  if (!has_bf16_lstm()) GTEST_SKIP() << "torch has no BF16 LSTM for a CPU without AVX-512";
  expect_learning(Precision::kBf16);
}

// On a GPU FP16 needs the scaler; BF16 autocast computes cuDNN's layers in FP16 and must learn without one.
TEST_F(Lstm, LearnsOnTheDevice) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  TrainingRun expected(lstm_toy_workload(4), {}, torch::kCPU, 1);
  const auto losses = losses_of(expected, 20);
  for (const Precision precision : {Precision::kFp32, Precision::kTf32, Precision::kFp16, Precision::kBf16}) {
    TrainingRun run(lstm_toy_workload(4), {.precision = precision}, torch::kCUDA, 1);
    EXPECT_LT(largest_deviation(losses_of(run, 20), losses), 0.02) << static_cast<int>(precision);
  }
}

}  // namespace
}  // namespace gpulift
