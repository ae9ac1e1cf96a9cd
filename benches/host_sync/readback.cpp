#include <cuda_runtime_api.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/cuda/handles.hpp"
#include "core/harness/technique.hpp"
#include "kernels/spin.hpp"
#include "workloads/device_time.hpp"

namespace {

using gpulift::check;
using gpulift::StreamHandle;

constexpr std::int64_t kTrainingSteps = 100;  // of one measured step: what is read every 100 is read once in each

struct Kernels {
  std::int64_t count;
  std::int64_t cycles;
};

/// When the loss is copied to the host, and how many copies later the host looks at it.
struct Reading {
  std::int64_t every;
  std::int64_t lag;
};

/// Training steps of small kernels, each of which adds 1 to the "loss", and a host that reads it.
class Training {
 public:
  Training(gpulift::Device& device, Kernels kernels, Reading reading)
      : kernels_(kernels),
        reading_(reading),
        loss_(device, 1),
        losses_(device, reading.lag + 1),
        slots_(reading.lag + 1) {
    check(cudaMemset(loss_.data(), 0, loss_.bytes()));
    check(cudaDeviceSynchronize());
    for (Slot& slot : slots_) slot.copied = gpulift::make_ordering_event();
  }

  void take_steps(StreamHandle stream) {
    for (std::int64_t i = 0; i < kTrainingSteps; ++i) {
      for (std::int64_t k = 0; k < kernels_.count; ++k) gpulift::spin(kernels_.cycles, loss_.data(), stream);
      if (++taken_ % reading_.every == 0) read(stream);
    }
  }

  /// Looks that found another loss than that of their step, and looks too few or too many; NaN ahead of any step.
  double errors() const {
    if (taken_ == 0) return std::numeric_limits<double>::quiet_NaN();
    const std::int64_t due = taken_ / reading_.every - reading_.lag;
    return static_cast<double>(wrong_) + std::abs(static_cast<double>(looks_ - due));
  }

 private:
  struct Slot {
    gpulift::UniqueEvent copied;
    std::uint64_t expected = 0;
  };

  void read(StreamHandle stream) {
    const std::size_t last = copies_++ % slots_.size();
    check(cudaMemcpyAsync(losses_.data() + last, loss_.data(), loss_.bytes(), cudaMemcpyDeviceToHost, stream));
    check(cudaEventRecord(slots_[last].copied.get(), stream));
    slots_[last].expected = static_cast<std::uint64_t>(taken_ * kernels_.count);
    if (copies_ < slots_.size()) return;
    const std::size_t oldest = copies_ % slots_.size();  // the next copy overwrites it
    check(cudaEventSynchronize(slots_[oldest].copied.get()));
    if (losses_.data()[oldest] != slots_[oldest].expected) ++wrong_;
    ++looks_;
  }

  Kernels kernels_;
  Reading reading_;
  gpulift::DeviceBuffer<std::uint64_t> loss_;
  gpulift::PinnedBuffer<std::uint64_t> losses_;
  std::vector<Slot> slots_;
  std::int64_t taken_ = 0;
  std::size_t copies_ = 0;
  std::int64_t looks_ = 0;
  std::int64_t wrong_ = 0;
};

void run(gpulift::Trial& trial) {
  gpulift::Device& device = trial.device();
  const Kernels kernels = trial.word("bound_by") == "launches"
                              ? Kernels{.count = 50, .cycles = 0}
                              : Kernels{.count = 10, .cycles = gpulift::cycles_in(device, 20e-6)};

  std::weak_ptr<const Training> current;  // of the arm that was made last
  trial.cost({.items = static_cast<double>(kTrainingSteps), .item = "training step", .roof = {}});
  trial.check({.meaning = "losses that are not those of their steps, and losses not looked at",
               .error =
                   [&](StreamHandle) {
                     const auto training = current.lock();
                     return training ? training->errors() : std::numeric_limits<double>::quiet_NaN();
                   },
               .tolerance = 0});

  const auto arm = [&](const char* name, Reading reading) {
    const auto make = [&device, &current, kernels, reading] {
      const auto training = std::make_shared<Training>(device, kernels, reading);
      current = training;
      return [training](StreamHandle stream) { training->take_steps(stream); };
    };
    return gpulift::Arm{.name = name, .make = make, .clock = gpulift::Clock::kHost};
  };
  constexpr std::int64_t kLater = 10;  // copies
  trial.compare({arm("each_step", {.every = 1, .lag = 0}), arm("every_10", {.every = 10, .lag = 0}),
                 arm("every_100", {.every = 100, .lag = 0}), arm("asynchronous", {.every = 1, .lag = kLater})});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What does it cost a training step that the host reads the loss?",
    .expectation = R"(
        A read that is waited for leaves the device idle until the copy is there (8 us), the host has seen it (3 us) and
        has launched again (4 us): some 15 us. Where launches set the pace, 50 kernels at 2.2 us make a step of 110 us,
        and the device is through 5 us after the last launch: 125 us read each step; every 10th 111.5, 1.12 times; every
        100th 110, 1.13. Where the device does, 10 kernels of 20 us and 1 us between two, 210 us: 225, every 10th 211.5,
        1.06, every 100th 1.07. Copied to pinned memory at once and looked at 10 steps later, nothing waits: 4 us more
        to launch, 114 us, 1.10; on the device the copy stands between two kernels for 3 us, 213 us, 1.06, with every
        loss seen.)",
    .predict =
        {{.arm = "each_step", .cases = {{"bound_by", "launches"}}, .on = "nvidia", .step_time_s = {{11.3e-3, 13.8e-3}}},
         {.arm = "every_10", .cases = {{"bound_by", "launches"}}, .on = "nvidia", .speedup = {{1.01, 1.23}}},
         {.arm = "every_100", .cases = {{"bound_by", "launches"}}, .on = "nvidia", .speedup = {{1.02, 1.24}}},
         {.arm = "asynchronous", .cases = {{"bound_by", "launches"}}, .on = "nvidia", .speedup = {{0.99, 1.21}}},
         {.arm = "each_step", .cases = {{"bound_by", "device"}}, .on = "nvidia", .step_time_s = {{20.2e-3, 24.8e-3}}},
         {.arm = "every_10", .cases = {{"bound_by", "device"}}, .on = "nvidia", .speedup = {{0.954, 1.17}}},
         {.arm = "every_100", .cases = {{"bound_by", "device"}}, .on = "nvidia", .speedup = {{0.963, 1.18}}},
         {.arm = "asynchronous", .cases = {{"bound_by", "device"}}, .on = "nvidia", .speedup = {{0.954, 1.17}}}},
    .arms = {"each_step", "every_10", "every_100", "asynchronous"},
    .l2 = gpulift::Cache::kNone,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"bound_by", {"launches", "device"}}},
    .quick = {{{"bound_by", "launches"}}},
    .run = run,
};
