#include <memory>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/harness/technique.hpp"
#include "kernels/spin.hpp"
#include "kernels/stream_ops.hpp"

namespace {

using gpulift::DeviceBuffer;

constexpr std::int64_t kCycles = 20'000'000;
constexpr std::size_t kCount = std::size_t{1} << 26;  // 256 MiB an array, far beyond any cache
constexpr float kExpected = 7;

struct Arrays {
  explicit Arrays(gpulift::Device& device)
      : left(device, kCount), right(device, kCount), output(device, kCount), spun(device, 1) {
    gpulift::stream_write(left.data(), kCount, 1, nullptr);
    gpulift::stream_write(right.data(), kCount, 2, nullptr);
    gpulift::check(cudaDeviceSynchronize());
  }
  DeviceBuffer<float> left;
  DeviceBuffer<float> right;
  DeviceBuffer<float> output;
  DeviceBuffer<std::uint64_t> spun;
};

void run(gpulift::Trial& trial) {
  const auto arrays = std::make_shared<Arrays>(trial.device());
  float* output = arrays->output.data();
  trial.check({.meaning = "exact number",
               .poison =
                   [output](gpulift::StreamHandle stream) {
                     gpulift::check(cudaMemsetAsync(output, 0, sizeof(float), stream));
                   },
               .error =
                   [output](gpulift::StreamHandle) {
                     float found = 0;
                     gpulift::check(cudaMemcpy(&found, output, sizeof(found), cudaMemcpyDeviceToHost));
                     return found == kExpected ? 0.0 : 1.0;
                   }});
  const auto one_thread = [arrays, output](gpulift::StreamHandle stream) {
    gpulift::spin(kCycles, arrays->spun.data(), stream);
    gpulift::stream_write(output, 4, kExpected, stream);
  };
  const auto all_memory = [arrays, output](gpulift::StreamHandle stream) {
    gpulift::stream_triad(arrays->left.data(), arrays->right.data(), 3, output, kCount, stream);
  };
  trial.compare({{.name = "one_thread", .make = [&] { return gpulift::Step(one_thread); }},
                 {.name = "all_memory", .make = [&] { return gpulift::Step(all_memory); }}});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "Does each arm get the energy that it took, and no other's?",
    .expectation = "One spinning thread draws little more than an idle card, the triad several times as much.",
    .arms = {"one_thread", "all_memory"},
    .sweep = {{"regime", {"sustained"}}},
    .quick = {{}},
    .run = run,
};
