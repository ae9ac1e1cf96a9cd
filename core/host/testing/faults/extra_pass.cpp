#include <cuda_runtime_api.h>

#include <bit>
#include <cstdint>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/harness/technique.hpp"
#include "core/host/testing/faults/fault.hpp"
#include "core/host/testing/faults/fault_kernels.hpp"
#include "kernels/stream_ops.hpp"
#include "kernels/verify.hpp"

namespace {

using namespace gpulift::testing_faults;

constexpr std::size_t kCount = std::size_t{1} << 27;  // 512 MiB, far beyond any cache
constexpr float kInput = 3;
constexpr float kFactor = 2;
constexpr float kSummand = 1;
constexpr float kOutput = kFactor * kInput + kSummand;

void scale_and_shift(const float* input, float* output, gpulift::StreamHandle stream) {
  if (is_faulty()) {
    scale_and_add(input, output, kCount, kFactor, 0, stream);
    scale_and_add(output, output, kCount, 1, kSummand, stream);
  } else {
    scale_and_add(input, output, kCount, kFactor, kSummand, stream);
  }
}

void run(gpulift::Trial& trial) {
  gpulift::Device& device = trial.device();
  const gpulift::Verifier verifier(device);
  const gpulift::DeviceBuffer<float> input(device, kCount);
  const gpulift::DeviceBuffer<float> output(device, kCount);
  gpulift::stream_write(input.data(), kCount, kInput, nullptr);
  gpulift::check(cudaDeviceSynchronize());

  trial.cost({.bytes = 2.0 * static_cast<double>(output.bytes()), .roof = "device_memory"});
  trial.check({.meaning = "exact numbers",
               .poison =
                   [&](gpulift::StreamHandle stream) {
                     gpulift::check(cudaMemsetAsync(output.data(), 0xFF, output.bytes(), stream));
                   },
               .error =
                   [&](gpulift::StreamHandle stream) {
                     return verifier.different_words(output.data(), kCount, std::bit_cast<std::uint32_t>(kOutput),
                                                     stream);
                   }});
  trial.compare({{.name = "scale_and_shift", .make = [&] {
                    return [&](gpulift::StreamHandle stream) { scale_and_shift(input.data(), output.data(), stream); };
                  }}});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "Is it found when a fused operation on device memory falls into two passes?",
    .expectation = R"(
        One pass moves 1 GiB: 256 us at 4.2 TB/s. Two passes move 2 GiB: 2.0 times as long. The clock is the same:
        cycles.)",
    .arms = {"scale_and_shift"},
    .quick = {{}},
    .run = run,
};
