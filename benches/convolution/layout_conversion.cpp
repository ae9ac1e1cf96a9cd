// What a layer pays where images come as NCHW and it wants NHWC: one conversion, and nothing else.

#include "workloads/cudnn/layout_conversion.hpp"

#include <cuda_fp16.h>

#include <cstdint>
#include <memory>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/cuda/device.hpp"
#include "core/harness/technique.hpp"
#include "kernels/channels_last.hpp"
#include "kernels/fill.hpp"
#include "kernels/verify.hpp"
#include "workloads/memory_roof.hpp"

namespace {

using gpulift::ImageLayout;
using gpulift::StreamHandle;
using Bits = gpulift::DeviceBuffer<std::uint16_t>;

constexpr std::int64_t kChannels = 256;  // of ResNet-50: conv2's results at 56 x 56, conv4's at 14 x 14

void run(gpulift::Trial& trial) {
  const std::int64_t images = trial.number("images");
  const std::int64_t side = trial.number("side");
  const auto tensor = [&](ImageLayout layout) { return gpulift::image_tensor(images, kChannels, side, side, layout); };
  const gpulift::ImageCounts counts{.images = static_cast<std::size_t>(images),
                                    .channels = static_cast<std::size_t>(kChannels),
                                    .pixels = static_cast<std::size_t>(side * side)};
  gpulift::Device& device = trial.device();
  trial.version("cudnn", gpulift::cudnn_version());
  const gpulift::DeviceBuffer<__half> numbers(device, counts.elements());
  const auto* const from = reinterpret_cast<const std::uint16_t*>(numbers.data());
  const Bits to(device, counts.elements());
  const Bits reference(device, counts.elements());
  const gpulift::Verifier verifier(device);
  // So large that none is a zero, whose sign need not outlive cuDNN's product with 1.
  gpulift::fill_normal(numbers.data(), numbers.size(), trial.seed(), nullptr, 1000.0F);
  to_channels_last_reference(counts, from, reference.data(), nullptr);
  gpulift::check(cudaDeviceSynchronize());

  const double moved = 2.0 * static_cast<double>(to.bytes());
  trial.cost({.bytes = moved, .roof = gpulift::memory_roof(device.l2_bytes(), moved)});
  trial.check({.meaning = "exact bytes",
               .poison = [&](StreamHandle s) { gpulift::check(cudaMemsetAsync(to.data(), 0xFF, to.bytes(), s)); },
               .error =
                   [&](StreamHandle stream) {
                     return verifier.different_bytes(to.data(), reference.data(), to.bytes(), stream);
                   }});
  const gpulift::CudnnLibrary library = gpulift::open_cudnn();
  const auto cudnn = [&]() -> gpulift::Step {
    const gpulift::CudnnLayoutConversion conversion(library, tensor(ImageLayout::kNchw), tensor(ImageLayout::kNhwc));
    return [conversion, from, &to](StreamHandle stream) { conversion.enqueue(from, to.data(), stream); };
  };
  const auto own = [&]() -> gpulift::Step {
    return [counts, from, &to](StreamHandle stream) { to_channels_last(counts, from, to.data(), stream); };
  };
  constexpr auto kClock = gpulift::Clock::kUnheld;
  trial.compare({{.name = "cudnn", .make = cudnn, .clock = kClock}, {.name = "own", .make = own, .clock = kClock}});
}

gpulift::Point case_of(std::int64_t images, std::int64_t side) { return {{"images", images}, {"side", side}}; }

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What does it cost to convert images from NCHW to NHWC, and does cuDNN do it as fast as memory allows?",
    .expectation = R"(
        Bytes decide: each is read once and written once. 64 images of 256 x 56 x 56 in FP16 are 0.103 GB, whose copy
        takes an H100 of 3.0 TB/s 69 us. The own kernel, all of whose accesses are of 16 bytes, should reach 0.9 of the
        copy: 76 us; cuDNN's, which moves one number at a time, 0.6: 114 us, 1.5 times. The 1 x 1 convolution that makes
        these images takes 42 us: a conversion at its border costs more than the layer. At 14 x 14 the same images lie in
        the cache: 5 us against 8. Of one image either is a launch of some 2.5 us: 1.0 at 14 x 14; at 56 x 56 3 us.)",
    .predict = {{.arm = "cudnn", .cases = case_of(64, 56), .on = "h100", .step_time_s = {{103e-6, 125e-6}}},
                {.arm = "own", .cases = case_of(64, 56), .on = "nvidia-h", .speedup = {{1.35, 1.65}}},
                {.arm = "own", .cases = case_of(64, 14), .on = "nvidia-h", .speedup = {{1.44, 1.76}}},
                {.arm = "own", .cases = case_of(1, 14), .on = "nvidia-h", .speedup = {{0.95, 1.05}}},
                {.arm = "own", .cases = case_of(1, 56), .on = "h100", .step_time_s = {{2.7e-6, 3.3e-6}}}},
    .arms = {"cudnn", "own"},
    .l2 = gpulift::Cache::kBySize,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"images", {1, 64}}, {"side", {14, 56}}},
    .quick = {{{"images", 64}, {"side", 56}}},
    .run = run,
};
