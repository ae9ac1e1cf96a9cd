#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/cuda/device.hpp"
#include "core/harness/technique.hpp"
#include "kernels/stream_ops.hpp"
#include "kernels/verify.hpp"
#include "workloads/host_memory.hpp"
#include "workloads/host_pattern.hpp"

namespace {

using gpulift::Arm;
using gpulift::check;
using gpulift::Device;
using gpulift::StreamHandle;
using gpulift::Work;
using PinnedBuffer = gpulift::PinnedBuffer<std::byte>;

constexpr int kPoison = 0xFF;

/// Kernels that read a batch so many times, one after the other, and write what they read.
struct Passes {
  Passes(Device& device, std::size_t bytes, std::int64_t count) : count(count), read(device, bytes / sizeof(float)) {}

  void enqueue(const void* data, StreamHandle stream) const {
    for (std::int64_t pass = 0; pass < count; ++pass) {
      gpulift::stream_copy(static_cast<const float*>(data), read.data(), read.size(), stream);
    }
  }

  std::int64_t count;
  gpulift::DeviceBuffer<float> read;
};

std::shared_ptr<std::byte> managed_memory(std::size_t bytes) {
  void* data = nullptr;
  check(cudaMallocManaged(&data, bytes));
  return {static_cast<std::byte*>(data), [](std::byte* held) { static_cast<void>(cudaFree(held)); }};
}

/// Without it the driver moves all managed memory at every launch, and the host may not touch it while a kernel runs.
std::string why_not_managed(const Device& device) {
  int concurrent = 0;
  check(cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, device.index()));
  return concurrent != 0 ? "" : "managed memory does not move on demand here (concurrentManagedAccess is 0)";
}

void run(gpulift::Trial& trial) {
  const auto bytes = static_cast<std::size_t>(trial.number("bytes"));
  Device& device = trial.device();
  constexpr std::size_t kBuffersOnDevice = 4;  // and as much again to spare
  if (device.free_bytes() < 2 * kBuffersOnDevice * bytes) {
    trial.skip("the device has less free memory than twice what the arms need", "end what else uses it");
  }
  const Passes passes(device, bytes, trial.number("passes"));
  const gpulift::Verifier verifier(device);
  const gpulift::PageableBuffer batch(bytes);
  gpulift::fill_host_pattern(batch.span(), trial.seed());

  trial.cost({.bytes = static_cast<double>(bytes), .items = 1, .item = "batch", .roof = "host_link/h2d"});
  trial.check(
      {.meaning = "exact bytes",
       .poison = [&](StreamHandle stream) { check(cudaMemsetAsync(passes.read.data(), kPoison, bytes, stream)); },
       .error =
           [&](StreamHandle stream) { return verifier.wrong_bytes(passes.read.data(), bytes, trial.seed(), stream); },
       .tolerance = 0});

  // The host writes the batch ahead of each step, untimed, which brings managed pages back to it. By one thread:
  // OpenMP's spin on all cores for milliseconds after it, beside the driver, which has faults to handle.
  const auto written_before = [&](std::byte* data, gpulift::Step step) {
    return Work(std::move(step)).before([&batch, data] { std::memcpy(data, batch.data(), batch.bytes()); });
  };
  const auto explicit_copy = [&] {
    const auto source = std::make_shared<const PinnedBuffer>(device, bytes);
    const auto target = std::make_shared<const gpulift::DeviceBuffer<std::byte>>(device, bytes);
    return written_before(source->data(), [&passes, source, target](StreamHandle stream) {
      check(cudaMemcpyAsync(target->data(), source->data(), source->bytes(), cudaMemcpyHostToDevice, stream));
      passes.enqueue(target->data(), stream);
    });
  };
  const auto managed = [&] {
    const auto data = managed_memory(bytes);
    return written_before(data.get(), [&, data](StreamHandle stream) { passes.enqueue(data.get(), stream); });
  };
  const auto prefetched = [&] {
    const auto data = managed_memory(bytes);
    return written_before(data.get(), [&passes, bytes, data, to = device.index()](StreamHandle stream) {
      check(cudaMemPrefetchAsync(data.get(), bytes, {.type = cudaMemLocationTypeDevice, .id = to}, 0, stream));
      passes.enqueue(data.get(), stream);
    });
  };
  const auto mapped = [&] {
    const auto data = std::make_shared<const PinnedBuffer>(device, bytes);
    return written_before(data->data(), [&, data](StreamHandle stream) { passes.enqueue(data->data(), stream); });
  };
  // A page fault and a prefetch are work of the driver on the host, so the host's clock judges all arms.
  const auto arm = [](const char* name, auto make, const std::string& unavailable) {
    return Arm{.name = name, .make = make, .clock = gpulift::Clock::kHost, .unavailable = unavailable};
  };
  const std::string not_managed = why_not_managed(device);
  trial.compare({arm("explicit_copy", explicit_copy, ""), arm("managed", managed, not_managed),
                 arm("managed_prefetch", prefetched, not_managed), arm("mapped", mapped, "")});
}

gpulift::Point case_of(std::int64_t passes, std::int64_t bytes) { return {{"passes", passes}, {"bytes", bytes}}; }

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What do managed and mapped memory cost where the host writes a batch and the device reads it?",
    .expectation = R"(
        128 MiB read once: the copy takes 2.4 ms at 55 GB/s, a pass, which writes as much, 0.1 ms. Managed pages come by
        faults, some 10 GB/s: 13 ms, 0.2 times as fast. Prefetched, 64 blocks of 2 MiB at 30 us of the driver's work
        each beside the transfer: 4.5 ms, 0.55. Mapped memory is read over the link where it lies, 2.6 ms: 0.95. Read 16
        times the copy is made once and the passes take 1.4 ms: explicit 3.9 ms, managed 0.27, prefetched 0.65, mapped
        16 x 2.6 ms: 0.09. 1 MiB is latency: the copy and a pass 33 us; mapped saves the copy's 5 us, 1.1 times; faults
        in some five rounds of 30 us: 0.2; a prefetch 60 us: 0.5. Read 16 times, mapped loses here too: 80 against 350
        us, 0.2.)",
    .predict =
        {{.arm = "managed", .cases = {{"passes", 1}}, .on = "nvidia", .speedup = {{0.18, 0.22}}},
         {.arm = "managed_prefetch", .cases = case_of(1, 128 << 20), .on = "nvidia", .speedup = {{0.495, 0.605}}},
         {.arm = "mapped", .cases = case_of(1, 128 << 20), .on = "nvidia", .speedup = {{0.855, 1.04}}},
         {.arm = "managed", .cases = case_of(16, 128 << 20), .on = "nvidia", .speedup = {{0.243, 0.297}}},
         {.arm = "managed_prefetch", .cases = case_of(16, 128 << 20), .on = "nvidia", .speedup = {{0.585, 0.715}}},
         {.arm = "mapped", .cases = case_of(16, 128 << 20), .on = "nvidia", .speedup = {{0.081, 0.099}}},
         {.arm = "managed_prefetch", .cases = case_of(1, 1 << 20), .on = "nvidia", .speedup = {{0.45, 0.55}}},
         {.arm = "mapped", .cases = case_of(1, 1 << 20), .on = "nvidia", .speedup = {{0.99, 1.21}}},
         {.arm = "mapped", .cases = case_of(16, 1 << 20), .on = "nvidia", .speedup = {{0.18, 0.22}}}},
    .found = R"(
        managed_prefetch has 0.87 to 0.91 where 128 MiB are read once: it takes 0.2 to 0.4 ms more than the copy, 4 to 6
        us for each of 64 blocks, not 30. Whether the driver's work is less, or hides behind the transfer, is not
        traced.)",
    .arms = {"explicit_copy", "managed", "managed_prefetch", "mapped"},
    .l2 = gpulift::Cache::kCold,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"passes", {1, 16}}, {"bytes", {1 << 20, 128 << 20}}},
    .quick = {{{"passes", 1}, {"bytes", 128 << 20}}},
    .run = run,
};
