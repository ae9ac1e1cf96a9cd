#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/cuda/device.hpp"
#include "core/harness/host_cache.hpp"
#include "core/harness/technique.hpp"
#include "kernels/spin.hpp"
#include "kernels/verify.hpp"
#include "workloads/device_time.hpp"
#include "workloads/host_memory.hpp"
#include "workloads/host_pattern.hpp"
#include "workloads/rotation.hpp"

namespace {

using gpulift::check;
using gpulift::PageableBuffer;
using gpulift::StreamHandle;
using PinnedBuffer = gpulift::PinnedBuffer<std::byte>;

constexpr int kPoison = 0xFF;

/// About as long as the copy from pinned memory, and no shorter than a launch and a wait.
double kernel_us(std::size_t bytes) { return std::max(20.0, static_cast<double>(bytes) / 55e3); }

/// A step: a batch goes to the device on one stream, a kernel of known length runs on another, and the host waits for
/// both, as one that reads a loss does.
struct Steps {
  Steps(gpulift::Device& device, std::size_t bytes, bool copy_first)
      : copy_first(copy_first),
        cycles(gpulift::cycles_in(device, 1e-6 * kernel_us(bytes))),
        side(device.side_stream(0)),
        slots(bytes, gpulift::footprint_beyond(gpulift::last_level_cache_bytes())),
        target(device, bytes),
        count(device, 1) {}

  void take(const std::byte* source, bool blocking, StreamHandle stream) {
    if (!copy_first) gpulift::spin(cycles, count.data(), stream);
    check(cudaMemcpyAsync(target.data(), source + slots.next_offset(), target.bytes(), cudaMemcpyHostToDevice, side));
    if (blocking) check(cudaStreamSynchronize(side));
    if (copy_first) gpulift::spin(cycles, count.data(), stream);
    check(cudaStreamSynchronize(side));
    check(cudaStreamSynchronize(stream));
  }

  bool copy_first;
  std::int64_t cycles;
  StreamHandle side;
  gpulift::Rotation slots;
  gpulift::DeviceBuffer<std::byte> target;
  gpulift::DeviceBuffer<std::uint64_t> count;  // of kernels
};

void run(gpulift::Trial& trial) {
  const auto bytes = static_cast<std::size_t>(trial.number("bytes"));
  gpulift::Device& device = trial.device();
  Steps steps(device, bytes, trial.word("queued_first") == "copy");
  const gpulift::Verifier verifier(device);

  trial.note("kernel_us", std::to_string(kernel_us(bytes)));
  trial.note("footprint_bytes", std::to_string(steps.slots.bytes()));
  trial.cost({.bytes = static_cast<double>(bytes), .items = 1, .item = "copy", .roof = "host_link/h2d"});
  trial.check({.meaning = "exact bytes, and one kernel",
               .poison =
                   [&](StreamHandle stream) {
                     check(cudaMemsetAsync(steps.target.data(), kPoison, bytes, stream));
                     check(cudaMemsetAsync(steps.count.data(), 0, steps.count.bytes(), stream));
                     check(cudaStreamSynchronize(stream));  // the copy is on a stream that does not wait for this one
                   },
               .error =
                   [&](StreamHandle stream) {
                     std::uint64_t kernels = 0;
                     check(
                         cudaMemcpyAsync(&kernels, steps.count.data(), sizeof kernels, cudaMemcpyDeviceToHost, stream));
                     const double wrong = verifier.wrong_bytes(steps.target.data(), bytes, trial.seed(), stream,
                                                               steps.slots.offset() / sizeof(std::uint64_t));
                     return wrong + std::abs(static_cast<double>(kernels) - 1);
                   },
               .tolerance = 0});

  const auto pageable = [&] {
    auto memory = std::make_shared<const PageableBuffer>(steps.slots.bytes());
    std::memset(memory->data(), 0, memory->bytes());  // its pages lie where this thread runs, as pinned ones do
    return memory;
  };
  const auto pinned = [&] { return std::make_shared<const PinnedBuffer>(device, steps.slots.bytes()); };
  const auto arm = [&](const char* name, auto make_memory, bool blocking) {
    const auto make = [&steps, make_memory, blocking, seed = trial.seed()] {
      auto memory = make_memory();
      gpulift::fill_host_pattern({memory->data(), memory->bytes()}, seed);
      return [&steps, memory, blocking](StreamHandle stream) { steps.take(memory->data(), blocking, stream); };
    };
    return gpulift::Arm{.name = name, .make = make, .clock = gpulift::Clock::kHost};
  };
  trial.compare({arm("pageable", pageable, true), arm("pageable_async", pageable, false), arm("pinned", pinned, true),
                 arm("pinned_async", pinned, false)});
}

gpulift::Point case_of(const std::string& queued_first, std::int64_t bytes) {
  return {{"queued_first", queued_first}, {"bytes", bytes}};
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "Which copies to the device let the host go on, and so run beside a kernel?",
    .expectation = R"(
        64 MiB take 1.2 ms from pinned memory and some 5.6 ms from pageable, which a core copies into the driver's
        buffers; the kernel takes 1.2 ms. An "asynchronous" copy from pageable memory returns when that core is done, so
        it is none: copy first, both take 5.6 + 1.2 ms, ratio 1.0. Pinned and waited for, 1.2 + 1.2 ms: 2.8 times;
        pinned and not waited for, max(1.2, 1.2) ms: 5.5. Kernel first, the host may as well wait for the copy:
        pageable 5.6 ms, pinned 1.25 ms either way, 4.5. 64 KiB beside 20 us: a pageable copy of that size is staged at
        once and truly asynchronous. Copy first, 18 + 28 us against 36 (1.3), pinned 38 (1.2), pinned asynchronous 31
        us (1.5); kernel first, it hides all: 1.0.)",
    .predict =
        {{.arm = "pageable_async", .cases = case_of("copy", 64 << 20), .on = "nvidia", .speedup = {{0.95, 1.05}}},
         {.arm = "pinned", .cases = case_of("copy", 64 << 20), .on = "nvidia", .speedup = {{2.52, 3.08}}},
         {.arm = "pinned_async", .cases = case_of("copy", 64 << 20), .on = "nvidia", .speedup = {{4.95, 6.05}}},
         {.arm = "pinned", .cases = case_of("kernel", 64 << 20), .on = "nvidia", .speedup = {{4.05, 4.95}}},
         {.arm = "pinned_async", .cases = case_of("kernel", 64 << 20), .on = "nvidia", .speedup = {{4.05, 4.95}}},
         {.arm = "pageable_async", .cases = case_of("copy", 64 << 10), .on = "nvidia", .speedup = {{1.17, 1.43}}},
         {.arm = "pinned", .cases = case_of("copy", 64 << 10), .on = "nvidia", .speedup = {{1.08, 1.32}}},
         {.arm = "pinned_async", .cases = case_of("copy", 64 << 10), .on = "nvidia", .speedup = {{1.35, 1.65}}},
         {.arm = "pageable_async", .cases = case_of("kernel", 64 << 10), .on = "nvidia", .speedup = {{0.95, 1.05}}},
         {.arm = "pinned", .cases = case_of("kernel", 64 << 10), .on = "nvidia", .speedup = {{0.95, 1.05}}},
         {.arm = "pinned_async", .cases = case_of("kernel", 64 << 10), .on = "nvidia", .speedup = {{0.95, 1.05}}}},
    .found = R"(
        A core of that H100's host copies from pageable memory at 7.4 GB/s, not 12: 9.1 ms, and 10.3 with a kernel
        behind it, where 5.6 and 6.8 were estimated. The pinned arms take what was predicted, 1.26 and 2.5 ms. Why the
        core is that slow is not known; others kept 1.1 to 1.7 cores busy.)",
    .claims = {"non-blocking-beside-compute-faster"},
    .arms = {"pageable", "pageable_async", "pinned", "pinned_async"},
    .l2 = gpulift::Cache::kNone,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"queued_first", {"copy", "kernel"}}, {"bytes", {64 << 10, 64 << 20}}},
    .quick = {{{"queued_first", "copy"}, {"bytes", 64 << 20}}},
    .run = run,
};
