#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/harness/technique.hpp"
#include "core/host/testing/variant.hpp"
#include "kernels/stream_ops.hpp"

namespace {

using gpulift::DeviceBuffer;

// 256 MiB an array, far beyond any cache.
constexpr std::size_t kPermille = 67'108;  // a thousandth of 2^26, and a multiple of 4
// The same for all builds: where the arrays lie to each other in memory has an effect of its own, of some 0.3 %.
constexpr std::size_t kAllocated = 1010 * kPermille;

/// How many elements this build works on: extra work of so many thousandths.
std::size_t count() { return (1000 + static_cast<std::size_t>(gpulift::testing_techniques::kVariant)) * kPermille; }

struct Arrays {
  explicit Arrays(gpulift::Device& device)
      : left(device, kAllocated), right(device, kAllocated), output(device, kAllocated) {
    gpulift::stream_write(left.data(), count(), 1, nullptr);
    gpulift::stream_write(right.data(), count(), 2, nullptr);
    gpulift::check(cudaDeviceSynchronize());
  }
  DeviceBuffer<float> left;
  DeviceBuffer<float> right;
  DeviceBuffer<float> output;
};

gpulift::Arm triad_arm(const std::string& name, gpulift::Device& device, float** last_element) {
  return {.name = name, .make = [&device, last_element] {
            const auto arrays = std::make_shared<Arrays>(device);
            *last_element = arrays->output.data() + count() - 1;
            return [arrays](gpulift::StreamHandle stream) {
              gpulift::stream_triad(arrays->left.data(), arrays->right.data(), 3, arrays->output.data(), count(),
                                    stream);
            };
          }};
}

void run(gpulift::Trial& trial) {
  float* last_element = nullptr;
  trial.check({.meaning = "exact number",
               .poison =
                   [&](gpulift::StreamHandle stream) {
                     gpulift::check(cudaMemsetAsync(last_element, 0, sizeof(float), stream));
                   },
               .error =
                   [&](gpulift::StreamHandle) {
                     float found = 0;
                     gpulift::check(cudaMemcpy(&found, last_element, sizeof(found), cudaMemcpyDeviceToHost));
                     return found == 7 ? 0.0 : 1.0;
                   }});
  trial.compare(
      {triad_arm("baseline", trial.device(), &last_element), triad_arm("other", trial.device(), &last_element)});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "Is extra work in one of two builds found, for device memory?",
    .expectation = "The ratio of the elements.",
    .arms = {"baseline", "other"},
    .quick = {{}},
    .run = run,
};
