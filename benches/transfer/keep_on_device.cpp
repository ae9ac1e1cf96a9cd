#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/cuda/device.hpp"
#include "core/harness/technique.hpp"
#include "kernels/fill.hpp"
#include "kernels/spin.hpp"
#include "kernels/verify.hpp"
#include "workloads/host_pattern.hpp"
#include "workloads/memory_roof.hpp"

namespace {

using gpulift::check;
using gpulift::StreamHandle;

constexpr int kPoison = 0xFF;
constexpr int kRounds = 8;  // of multiply-adds of an element: memory bounds the kernel

/// What a step works on, on the device and in pinned memory.
struct Tensors {
  Tensors(gpulift::Device& device, std::size_t count)
      : host_input(device, count),
        host_output(device, count),
        input(device, count),
        output(device, count),
        expected(device, count) {}

  void copy_in(StreamHandle stream) const {
    check(cudaMemcpyAsync(input.data(), host_input.data(), input.bytes(), cudaMemcpyHostToDevice, stream));
  }
  void compute(float* result, StreamHandle stream) const {
    gpulift::fma_chain(input.data(), result, input.size(), kRounds, stream);
  }
  void copy_out(StreamHandle stream) const {
    check(cudaMemcpyAsync(host_output.data(), output.data(), output.bytes(), cudaMemcpyDeviceToHost, stream));
  }

  gpulift::PinnedBuffer<float> host_input;
  gpulift::PinnedBuffer<float> host_output;
  gpulift::DeviceBuffer<float> input;
  gpulift::DeviceBuffer<float> output;
  gpulift::DeviceBuffer<float> expected;
};

void run(gpulift::Trial& trial) {
  const auto bytes = static_cast<std::size_t>(trial.number("bytes"));
  const Tensors tensors(trial.device(), bytes / sizeof(float));
  const gpulift::Verifier verifier(trial.device());
  gpulift::fill_normal(tensors.input.data(), tensors.input.size(), trial.seed(), nullptr);
  tensors.compute(tensors.expected.data(), nullptr);
  check(cudaMemcpy(tensors.host_input.data(), tensors.input.data(), bytes, cudaMemcpyDeviceToHost));
  check(cudaDeviceSynchronize());
  bool on_host = false;  // where the arm that was made last leaves its result

  const double traffic = 2.0 * static_cast<double>(bytes);
  trial.cost(
      {.bytes = traffic, .items = 1, .item = "step", .roof = gpulift::memory_roof(trial.device().l2_bytes(), traffic)});
  trial.check({.meaning = "exact bytes of the result, where the arm leaves it",
               .poison =
                   [&](StreamHandle stream) {
                     check(cudaMemsetAsync(tensors.output.data(), kPoison, bytes, stream));
                     gpulift::fill_host_bytes({reinterpret_cast<std::byte*>(tensors.host_output.data()), bytes},
                                              std::byte{kPoison});
                   },
               .error =
                   [&](StreamHandle stream) {
                     if (on_host) {  // where the result was, so that it is compared on the device
                       check(cudaMemcpyAsync(tensors.output.data(), tensors.host_output.data(), bytes,
                                             cudaMemcpyHostToDevice, stream));
                     }
                     return verifier.different_bytes(tensors.output.data(), tensors.expected.data(), bytes, stream);
                   },
               .tolerance = 0});

  const auto round_trip = [&](StreamHandle stream) {
    tensors.copy_in(stream);
    tensors.compute(tensors.output.data(), stream);
    tensors.copy_out(stream);
  };
  const auto resident = [&](StreamHandle stream) { tensors.compute(tensors.output.data(), stream); };
  trial.compare({{.name = "round_trip",
                  .make =
                      [&] {
                        on_host = true;
                        return round_trip;
                      },
                  .cost = gpulift::Cost{.bytes = traffic, .items = 1, .item = "step", .roof = "host_link/both"}},
                 {.name = "resident", .make = [&] {
                    on_host = false;
                    return resident;
                  }}});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What does it cost to fetch a tensor from the host and bring it back in every step?",
    .expectation = R"(
        The kernel reads and writes its tensor once. For 128 MiB at 3.0 TB/s that is 0.09 ms; the copies on both sides
        are 2 x 2.4 ms from and to pinned memory at 55 GB/s, one after the other, so half of what the link can carry:
        resident is 55 times as fast. At 64 KiB it is latency: the kernel takes 2.5 us, a copy 1.2 us and 3 us between
        it and the kernel: 11 us against 2.5, 4 times. From pageable memory both would be worse.)",
    .predict = {{.arm = "resident", .cases = {{"bytes", 64 << 10}}, .on = "h100", .speedup = {{3.6, 4.4}}},
                {.arm = "resident", .cases = {{"bytes", 128 << 20}}, .on = "h100", .speedup = {{49.5, 60.5}}}},
    .found = R"(
        At 64 KiB the round trip takes 21.7 us without the host, whose pace a hold keeps out: a copy and what lies
        between it and the kernel are 9.6 us, of which the bytes are 1.2, and not 4.2. Why is not known.)",
    .claims = {"keep-on-device-faster"},
    .arms = {"round_trip", "resident"},
    .l2 = gpulift::Cache::kBySize,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"bytes", {64 << 10, 128 << 20}}},
    .quick = {{{"bytes", 128 << 20}}},
    .run = run,
};
