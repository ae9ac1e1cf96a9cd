#include <ATen/Parallel.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <torch/version.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/harness/technique.hpp"
#include "workloads/torch/precision.hpp"
#include "workloads/torch/torch_session.hpp"

namespace {

struct Product {
  torch::Tensor left, right, out, expected;   // n x n each, `expected` in FP64
  torch::Tensor blocked_left, blocked_right;  // in FP32: the same in oneDNN's layout, the second transposed
  bool by_onednn = false;

  void multiply() {
    if (by_onednn) {
      out = at::mkldnn_linear(blocked_left, blocked_right);
    } else {
      torch::mm_out(out, left, right);
    }
  }
};

double seconds_of(Product& product) {
  product.multiply();  // warm-up
  const auto start = std::chrono::steady_clock::now();
  product.multiply();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Torch multiplies FP32 with MKL, which takes AVX2 on processors of others that have AVX-512; its convolutions take
/// oneDNN, which does not. The roof is the faster one's.
void choose_library(Product& product) {
  if (!at::hasMKLDNN()) return;
  product.blocked_left = product.left.to_mkldnn();
  product.blocked_right = product.right.t().contiguous().to_mkldnn();
  const double mm_s = seconds_of(product);
  const torch::Tensor out = product.out;
  product.by_onednn = true;
  if (seconds_of(product) < mm_s) return;
  product.by_onednn = false;
  product.out = out;
}

std::shared_ptr<Product> make_product(std::int64_t n, torch::ScalarType type) {
  auto product = std::make_shared<Product>();
  product->left = torch::randn({n, n}).to(type);
  product->right = torch::randn({n, n}).to(type);
  product->out = torch::empty({n, n}, type);
  product->expected = torch::mm(product->left.to(torch::kFloat64), product->right.to(torch::kFloat64));
  if (type == torch::kFloat32) choose_library(*product);
  return product;
}

void run(gpulift::Trial& trial) {
  const gpulift::OpenMpThreads threads_restored;
  at::set_num_threads(gpulift::host_threads());
  trial.version("libtorch", TORCH_VERSION);  // "torch" is that of Python arms
  trial.note("torch_threads", std::to_string(at::get_num_threads()));
  torch::manual_seed(trial.seed());

  const std::int64_t n = trial.number("n");
  const double flops = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  std::weak_ptr<Product> current;  // of the arm that was made last
  trial.check({.meaning = "relative Frobenius error against FP64",
               .poison = [&](auto) { current.lock()->out = torch::full_like(current.lock()->left, kNan); },
               .error =
                   [&](auto) {
                     const auto product = current.lock();
                     const torch::Tensor out = product->out.is_mkldnn() ? product->out.to_dense() : product->out;
                     const torch::Tensor difference = out.to(torch::kFloat64) - product->expected;
                     return (difference.norm() / product->expected.norm()).item<double>();
                   }});
  const auto arm = [&](const char* name, torch::ScalarType type, double tolerance) {
    return gpulift::Arm{.name = name,
                        .make = [&trial, &current, n, type]() -> gpulift::Step {
                          auto product = make_product(n, type);
                          current = product;
                          if (type == torch::kFloat32)
                            trial.note("fp32_by", product->by_onednn ? "onednn" : "torch_mm");
                          return [product](auto) { product->multiply(); };
                        },
                        .clock = gpulift::Clock::kHost,
                        .cost = gpulift::Cost{.flops = flops, .roof = std::string("host_gemm/") + name},
                        .tolerance = tolerance};
  };
  std::vector<gpulift::Arm> arms{arm("fp32", torch::kFloat32, 1e-5), arm("fp16", torch::kFloat16, 2e-3),
                                 arm("bf16", torch::kBFloat16, 1e-2)};
  for (gpulift::Arm& one : arms) {
    if (!gpulift::host_multiplies_in(gpulift::precision_named(one.name))) {
      one.unavailable = "the processor has no products of this format";
    }
  }
  trial.compare(std::move(arms));
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "How many operations per second can the host's cores reach in matrix products, per number format?",
    .expectation = R"(
        Per core two units of fused multiply-adds: 32 FP32 operations per clock with AVX2, 64 with AVX-512 (32 on Zen 4,
        whose units take it in halves), of which MKL or, on processors of others, oneDNN reaches 85 to 90 %; at 3 GHz
        that is 85 and 165 GFLOP/s for each core. FP16 and BF16 are twice FP32 with AVX-512's own instructions for them,
        less than FP32 where it must convert, and 16 times with AMX, of which memory leaves 5 to 8; where oneDNN has
        neither they are left out. One core stays free, as in training steps on a host, whose roof this is.)",
    .gpus = 0,
    .ceiling = true,
    .arms = {"fp32", "fp16", "bf16"},
    .l2 = gpulift::Cache::kNone,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"n", {2048}}},
    .quick = {},  // LibTorch loads for every launch, and no quick case is held against this roof
    .run = run,
};
