#include <stdexcept>

#include "kernels/bias_gelu.hpp"
#include "kernels/packed.hpp"

namespace gpulift {
namespace {

constexpr float kRootOfTwoOverPi = 0.7978845608F;
constexpr float kCubic = 0.044715F;

struct AddBias {
  std::size_t packs;  // in a row
  const __nv_bfloat16* bias;
  __device__ Pack operator()(std::size_t index, const Pack& values) const {
    return Add{}(0, values, load(bias + index % packs * kPack));
  }
};

/// x / 2 * (1 + tanh(z)) is x / (1 + exp(-2 z)): tanhf would cost more than the bytes.
struct Gelu {
  __device__ Pack operator()(std::size_t, const Pack& values) const {
    return each(
        [](float x) {
          const float z = kRootOfTwoOverPi * x * (1 + kCubic * x * x);
          return __fdividef(x, 1 + __expf(-2 * z));
        },
        values);
  }
};

struct AddBiasAndGelu {
  AddBias add_bias;
  __device__ Pack operator()(std::size_t index, const Pack& values) const {
    return Gelu{}(index, add_bias(index, values));
  }
};

__global__ __launch_bounds__(kMapThreads) void reference_kernel(BiasGelu data, float* output) {
  const std::size_t i = std::size_t{blockIdx.x} * kMapThreads + threadIdx.x;
  if (i >= data.count) return;
  const __nv_bfloat16 bias = data.bias[i % static_cast<std::size_t>(data.columns)];
  const double x = static_cast<double>(__bfloat162float(data.input[i])) + static_cast<double>(__bfloat162float(bias));
  output[i] = static_cast<float>(0.5 * x * (1 + tanh(0.79788456080286541 * (x + 0.044715 * x * x * x))));
}

AddBias add_bias_of(const BiasGelu& data) {
  if (data.columns < kPack || data.columns % kPack != 0) {
    throw std::invalid_argument("bias_gelu: the columns must be a multiple of 8");
  }
  require_aligned({data.bias});
  return {static_cast<std::size_t>(data.columns / kPack), data.bias};
}

}  // namespace

void bias_gelu(const BiasGelu& data, cudaStream_t stream) {
  map(data.count, data.output, AddBiasAndGelu{add_bias_of(data)}, stream, data.input);
}

void bias_gelu_reference(const BiasGelu& data, float* output, cudaStream_t stream) {
  if (data.count == 0) return;
  const auto blocks = static_cast<unsigned>((data.count + kMapThreads - 1) / kMapThreads);
  reference_kernel<<<blocks, kMapThreads, 0, stream>>>(data, output);
  check(cudaGetLastError());
}

}  // namespace gpulift
