#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/harness/technique.hpp"
#include "core/host/testing/faults/fault.hpp"
#include "kernels/verify.hpp"
#include "workloads/host_memory.hpp"
#include "workloads/host_pattern.hpp"

namespace {

using namespace gpulift::testing_faults;
using gpulift::check;
using gpulift::StreamHandle;

constexpr std::size_t kBytes = std::size_t{64} << 20;

/// The memory of a buffer that it keeps alive.
std::shared_ptr<std::byte> make_source(gpulift::Device& device) {
  if (is_faulty()) {
    const auto pageable = std::make_shared<const gpulift::PageableBuffer>(kBytes);
    return {pageable, pageable->data()};
  }
  const auto pinned = std::make_shared<const gpulift::PinnedBuffer<std::byte>>(device, kBytes);
  return {pinned, pinned->data()};
}

void run(gpulift::Trial& trial) {
  gpulift::Device& device = trial.device();
  const gpulift::Verifier verifier(device);
  const gpulift::DeviceBuffer<std::byte> target(device, kBytes);

  trial.cost({.bytes = static_cast<double>(kBytes), .roof = "host_link/h2d"});
  trial.check(
      {.meaning = "exact bytes",
       .poison = [&](StreamHandle stream) { check(cudaMemsetAsync(target.data(), 0xFF, kBytes, stream)); },
       .error =
           [&](StreamHandle stream) { return verifier.wrong_bytes(target.data(), kBytes, trial.seed(), stream); }});
  trial.compare({{.name = "copy",
                  .make =
                      [&] {
                        const auto source = make_source(device);
                        gpulift::fill_host_pattern({source.get(), kBytes}, trial.seed());
                        return [&target, source](StreamHandle stream) {
                          check(cudaMemcpyAsync(target.data(), source.get(), kBytes, cudaMemcpyHostToDevice, stream));
                        };
                      },
                  .clock = gpulift::Clock::kHost}});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "Is it found when a copy to the device comes from pageable memory?",
    .expectation = R"(
        From pinned memory 64 MiB take 1.2 ms at 55 GB/s, and the host issues them in 2 us. From pageable memory the
        host itself copies them first, at 8 to 20 GB/s: 3.3 to 8 ms, 3 to 7 times as long, all of it in the call.)",
    .arms = {"copy"},
    .quick = {{}},
    .run = run,
};
