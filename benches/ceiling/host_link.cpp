#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstring>
#include <limits>
#include <span>

#include "core/cuda/buffer.hpp"
#include "core/cuda/handles.hpp"
#include "core/harness/technique.hpp"
#include "kernels/fill.hpp"
#include "kernels/verify.hpp"
#include "workloads/host_pattern.hpp"

namespace {

using gpulift::Arm;
using gpulift::check;
using gpulift::StreamHandle;

constexpr int kPoison = 0xFF;

/// A pinned and a device buffer for each direction: sources hold the pattern of the seed, targets what arrives.
struct Link {
  Link(gpulift::Device& device, std::size_t bytes)
      : host_source(device, bytes),
        host_target(device, bytes),
        device_source(device, bytes),
        device_target(device, bytes) {}

  void down(StreamHandle stream) const {
    check(
        cudaMemcpyAsync(device_target.data(), host_source.data(), host_source.bytes(), cudaMemcpyHostToDevice, stream));
  }
  void up(StreamHandle stream) const {
    check(
        cudaMemcpyAsync(host_target.data(), device_source.data(), host_target.bytes(), cudaMemcpyDeviceToHost, stream));
  }
  std::span<std::byte> host_target_bytes() const { return {host_target.data(), host_target.bytes()}; }

  gpulift::PinnedBuffer<std::byte> host_source;
  gpulift::PinnedBuffer<std::byte> host_target;
  gpulift::DeviceBuffer<std::byte> device_source;
  gpulift::DeviceBuffer<std::byte> device_target;
};

void run(gpulift::Trial& trial) {
  const auto bytes = static_cast<std::size_t>(trial.number("bytes"));
  const Link link(trial.device(), bytes);
  const gpulift::Verifier verifier(trial.device());
  const gpulift::UniqueStream side = gpulift::make_stream();
  const gpulift::UniqueEvent forked = gpulift::make_ordering_event();
  const gpulift::UniqueEvent joined = gpulift::make_ordering_event();
  gpulift::fill_host_pattern({link.host_source.data(), bytes}, trial.seed());
  gpulift::fill_pattern(link.device_source.data(), bytes, trial.seed(), side.get());
  check(cudaStreamSynchronize(side.get()));
  struct {
    bool down = false;
    bool up = false;
  } moved;  // by the arm that was made last

  const auto traffic = static_cast<double>(bytes);
  trial.cost({.bytes = traffic, .roof = "host_link/h2d"});
  trial.check({.meaning = "exact bytes",
               .poison =
                   [&](StreamHandle stream) {
                     check(cudaMemsetAsync(link.device_target.data(), kPoison, bytes, stream));
                     check(cudaStreamSynchronize(stream));
                     gpulift::fill_host_bytes(link.host_target_bytes(), std::byte{kPoison});
                   },
               .error =
                   [&](StreamHandle stream) {
                     if (!moved.down && !moved.up) return std::numeric_limits<double>::quiet_NaN();
                     check(cudaStreamSynchronize(stream));
                     double wrong = 0;
                     if (moved.down)
                       wrong += verifier.wrong_bytes(link.device_target.data(), bytes, trial.seed(), stream);
                     if (moved.up) {
                       wrong += static_cast<double>(gpulift::wrong_host_bytes(link.host_target_bytes(), trial.seed()));
                     }
                     return wrong;
                   },
               .tolerance = 0});

  const auto both = [&](StreamHandle stream) {
    check(cudaEventRecord(forked.get(), stream));
    check(cudaStreamWaitEvent(side.get(), forked.get()));
    link.down(stream);
    link.up(side.get());
    check(cudaEventRecord(joined.get(), side.get()));
    check(cudaStreamWaitEvent(stream, joined.get()));
  };
  trial.compare({Arm{.name = "h2d",
                     .make =
                         [&] {
                           moved = {.down = true, .up = false};
                           return [&](StreamHandle stream) { link.down(stream); };
                         }},
                 Arm{.name = "d2h",
                     .make =
                         [&] {
                           moved = {.down = false, .up = true};
                           return [&](StreamHandle stream) { link.up(stream); };
                         },
                     .cost = gpulift::Cost{.bytes = traffic, .roof = "host_link/d2h"}},
                 Arm{.name = "both",
                     .make =
                         [&] {
                           moved = {.down = true, .up = true};
                           return both;
                         },
                     .cost = gpulift::Cost{.bytes = 2 * traffic, .roof = "host_link/both"}}});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "How fast does one copy engine move pinned memory each way, and two of them both ways at once?",
    .expectation = R"(
        PCIe 5 x16 signals 32 GT/s on 16 lanes, 63 GB/s after its 128b/130b code; packets of 256 bytes with some 26
        bytes of header leave 57, and public H200 figures are 55.4 GB/s down and 55.1 up: 9.7 ms for 512 MiB. The link
        is full duplex, so both ways at once should give nearly twice as much; acknowledgements and the host's memory
        take some: 100 to 105 GB/s together.)",
    .predict = {{.arm = "h2d", .on = "h200", .step_time_s = {{8.73e-3, 10.7e-3}}},
                {.arm = "d2h", .on = "h200", .step_time_s = {{8.77e-3, 10.7e-3}}},
                {.arm = "both", .on = "h200", .step_time_s = {{10.2e-3, 10.7e-3}}}},
    .ceiling = true,
    .arms = {"h2d", "d2h", "both"},
    .l2 = gpulift::Cache::kCold,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"bytes", {std::int64_t{512} << 20}}},
    .quick = {{{"bytes", std::int64_t{512} << 20}}},
    .run = run,
};
