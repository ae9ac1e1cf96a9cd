#include <cuda_runtime_api.h>

#include "core/harness/technique.hpp"
#include "core/host/testing/faults/fault.hpp"
#include "workloads/matmul.hpp"

namespace {

using namespace gpulift::testing_faults;
using gpulift::MatmulType;
using gpulift::StreamHandle;

constexpr gpulift::MatmulShape kShape{.m = 2048, .n = 2048, .k = 2048};

void run(gpulift::Trial& trial) {
  const MatmulType type = is_faulty() ? MatmulType::kFp32 : MatmulType::kBf16;
  gpulift::Matmul product(trial.device(), type, kShape, trial.seed());
  trial.cost({.flops = kShape.flops(), .roof = "gemm/bf16"});
  trial.check({.meaning = "relative Frobenius error against FP64",
               .poison = [&](StreamHandle stream) { product.poison(stream); },
               .error = [&](StreamHandle stream) { return product.error(stream); },
               .tolerance = gpulift::matmul_tolerance(MatmulType::kBf16, kShape.k)});
  trial.compare({{.name = "product", .make = [&] { return [&](StreamHandle stream) { product.enqueue(stream); }; }}});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "Is it found when a product of bf16 is computed in fp32, without tensor cores?",
    .expectation = R"(
        17 GFLOP take 25 us at 700 TFLOP/s in bf16 and 340 us at 50 TFLOP/s in fp32: 11 to 15 times as long. The clock
        is the same or higher, since fp32 draws less power: cycles.)",
    .arms = {"product"},
    .quick = {{}},
    .run = run,
};
