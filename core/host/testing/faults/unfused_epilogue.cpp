#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/harness/technique.hpp"
#include "core/host/testing/faults/fault.hpp"
#include "core/host/testing/faults/fault_kernels.hpp"
#include "kernels/fill.hpp"
#include "kernels/verify.hpp"
#include "workloads/lt_operation.hpp"

namespace {

using namespace gpulift::testing_faults;
using gpulift::check;
using gpulift::DeviceBuffer;
using gpulift::ElementType;
using gpulift::StreamHandle;

constexpr gpulift::MatmulShape kShape{.m = 4096, .n = 4096, .k = 1024};
constexpr auto kElements = static_cast<std::size_t>(kShape.m * kShape.n);
constexpr float kBiasDeviation = 8;

// A result is rounded once when fused and twice when not, each time by at most 2^-8 of itself; the first time it lacks
// its bias, which is at most 6.8 deviations. So the error is below 2^-8 (1 + 1 + 6.8 * 8 / 32) = 0.0145 of the larger
// of the result and its typical size, the root of k.
constexpr double kTolerance = 0.015;

/// relu(A^T B + bias) in bf16, and the same in fp32 to hold it against.
class Layer {
 public:
  Layer(gpulift::Device& device, std::uint64_t seed)
      : verifier_(device),
        a_(device, static_cast<std::size_t>(kShape.m * kShape.k)),
        b_(device, static_cast<std::size_t>(kShape.n * kShape.k)),
        bias_(device, static_cast<std::size_t>(kShape.m)),
        output_(device, kElements),
        expected_(device, kElements),
        workspace_(device, gpulift::kMatmulWorkspaceBytes),
        product_(ElementType::kBf16, ElementType::kBf16, CUBLAS_COMPUTE_32F, CUDA_R_32F, kShape) {
    gpulift::fill_normal(a_.data(), a_.size(), seed, nullptr);
    gpulift::fill_normal(b_.data(), b_.size(), seed + 1, nullptr);
    gpulift::fill_normal(bias_.data(), bias_.size(), seed + 2, nullptr, kBiasDeviation);
    if (!is_faulty()) {
      product_.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_RELU_BIAS);
      product_.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<std::uintptr_t>(bias_.data()));
    }
    algorithm_ = product_.candidates(1).front().algo;
    compute_expected();
  }

  void enqueue(StreamHandle stream) const {
    check(product_.enqueue(a_.data(), b_.data(), output_.data(), algorithm_, workspace_.data(), stream));
    if (is_faulty()) add_bias_relu(output_.data(), bias_.data(), kShape.m, kShape.n, stream);
  }

  void poison(StreamHandle stream) const { check(cudaMemsetAsync(output_.data(), 0xFF, output_.bytes(), stream)); }

  double error(StreamHandle stream) const {
    return verifier_.max_relative_error(output_.data(), expected_.data(), kElements,
                                        std::sqrt(static_cast<double>(kShape.k)), stream);
  }

 private:
  void compute_expected() const {
    const gpulift::LtOperation exact(ElementType::kBf16, ElementType::kFp32, CUBLAS_COMPUTE_32F, CUDA_R_32F, kShape);
    check(exact.enqueue(a_.data(), b_.data(), expected_.data(), exact.candidates(1).front().algo, workspace_.data(),
                        nullptr));
    add_bias_relu(expected_.data(), bias_.data(), kShape.m, kShape.n, nullptr);
    check(cudaDeviceSynchronize());
  }

  gpulift::Verifier verifier_;
  DeviceBuffer<__nv_bfloat16> a_;
  DeviceBuffer<__nv_bfloat16> b_;
  DeviceBuffer<__nv_bfloat16> bias_;
  DeviceBuffer<__nv_bfloat16> output_;
  DeviceBuffer<float> expected_;
  DeviceBuffer<std::byte> workspace_;
  gpulift::LtOperation product_;
  cublasLtMatmulAlgo_t algorithm_{};
};

void run(gpulift::Trial& trial) {
  const Layer layer(trial.device(), trial.seed());
  trial.cost({.flops = kShape.flops(), .roof = "gemm/bf16"});
  trial.check({.meaning = "largest relative error",
               .poison = [&](StreamHandle stream) { layer.poison(stream); },
               .error = [&](StreamHandle stream) { return layer.error(stream); },
               .tolerance = kTolerance});
  trial.compare({{.name = "linear_relu", .make = [&] { return [&](StreamHandle stream) { layer.enqueue(stream); }; }}});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "Is it found when bias and ReLU are no longer fused into the matrix product?",
    .expectation = R"(
        34 GFLOP at 700 TFLOP/s take 49 us. A kernel of its own for the epilogue reads and writes 32 MiB: 64 MiB at 4.2
        TB/s are 16 us, half of it if the L2 still holds the product, and 1 us between the two kernels: 1.15 to 1.4
        times as long. The clock is the same: cycles.)",
    .arms = {"linear_relu"},
    .quick = {{}},
    .run = run,
};
