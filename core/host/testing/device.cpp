#include "core/harness/window.hpp"
#include "core/host/testing/counted_spin.hpp"
#include "kernels/stream_ops.hpp"

namespace {

using namespace gpulift::testing_techniques;
using gpulift::Arm;
using gpulift::DeviceBuffer;
using gpulift::StreamHandle;
using gpulift::Trial;

constexpr std::int64_t kShortCycles = 20'000;
constexpr std::int64_t kLongCycles = 10'000'000;

/// A kernel of known cycles, and one of twice as many.
void spin_twice_as_long(Trial& trial, std::int64_t cycles) {
  const Counter counter = make_counter(trial.device());
  trial.check(expect_kernels(counter));
  trial.cost({.items = static_cast<double>(cycles)});
  trial.compare({spinning_arm("baseline", counter, cycles), spinning_arm("other", counter, 2 * cycles)});
}

/// While it is made, such an arm holds so many quarters of the device's memory. The baseline, which has three, is made
/// again after the other asked for eight.
void ask_for_too_much(Trial& trial) {
  gpulift::Device& device = trial.device();
  const Counter counter = make_counter(device);
  trial.check(expect_kernels(counter));
  const auto taking = [&device, counter](const std::string& name, std::size_t quarters) {
    Arm arm = spinning_arm(name, counter, kShortCycles);
    arm.make = [&device, make = arm.make, quarters] {
      const std::size_t quarter_bytes = device.memory_bytes() / 4;
      const DeviceBuffer<char> most(device, 3 * quarter_bytes);
      const DeviceBuffer<char> rest(device, (quarters - 3) * quarter_bytes + 1);
      return make();
    };
    return arm;
  };
  trial.compare({taking("baseline", 3), taking("other", 8)});
}

void write_out_of_bounds(Trial& trial) {
  const Counter counter = make_counter(trial.device());
  trial.check(expect_kernels(counter));
  Arm arm{.name = "other", .make = [] {
            return [](StreamHandle stream) {
              auto* const outside = reinterpret_cast<std::uint64_t*>(8);  // no allocation is there
              gpulift::launch_empty(outside, stream);
            };
          }};
  trial.compare({spinning_arm("baseline", counter, kShortCycles), std::move(arm)});
}

/// Steps that the host bounds: the device idles in most of each.
Arm paced_arm(const std::string& name, const Counter& counter, gpulift::Clock clock) {
  constexpr double kHostWork_s = 3e-3;
  constexpr std::int64_t kCycles = 1'000'000;  // half a millisecond at full clock
  Arm arm = spinning_arm(name, counter, kCycles);
  arm.clock = clock;
  arm.make = [make = arm.make] {
    return [step = make().step()](StreamHandle stream) {
      const double start_s = gpulift::now_s();
      while (gpulift::now_s() - start_s < kHostWork_s) {
      }
      step(stream);
    };
  };
  return arm;
}

void pace_by_host(Trial& trial, gpulift::Clock clock_of_other) {
  const Counter counter = make_counter(trial.device());
  trial.check(expect_kernels(counter));
  trial.compare({paced_arm("baseline", counter, gpulift::Clock::kUnheld), paced_arm("other", counter, clock_of_other)});
}

struct Arrays {
  static constexpr std::size_t kCount = std::size_t{1} << 26;  // 256 MiB an array, far beyond any cache

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

/// One thread that spins, and a triad that takes all of the memory's rate.
void draw_power(Trial& trial) {
  constexpr std::int64_t kCycles = 20'000'000;
  constexpr float kExpected = 7;
  const auto arrays = std::make_shared<Arrays>(trial.device());
  float* output = arrays->output.data();
  trial.check(
      {.meaning = "exact number",
       .poison = [output](StreamHandle stream) { gpulift::check(cudaMemsetAsync(output, 0, sizeof(float), stream)); },
       .error =
           [output](StreamHandle) {
             float number = 0;
             gpulift::check(cudaMemcpy(&number, output, sizeof(number), cudaMemcpyDeviceToHost));
             return number == kExpected ? 0.0 : 1.0;
           }});
  const auto one_thread = [arrays, output](StreamHandle stream) {
    gpulift::spin(kCycles, arrays->spun.data(), stream);
    gpulift::stream_write(output, 4, kExpected, stream);
  };
  const auto all_memory = [arrays, output](StreamHandle stream) {
    gpulift::stream_triad(arrays->left.data(), arrays->right.data(), 3, output, Arrays::kCount, stream);
  };
  trial.compare({{.name = "baseline", .make = [&] { return gpulift::Step(one_thread); }},
                 {.name = "other", .make = [&] { return gpulift::Step(all_memory); }}});
}

void run(Trial& trial) {
  const std::string does = trial.word("does");
  if (does == "spins_short") spin_twice_as_long(trial, kShortCycles);
  if (does == "spins_long") spin_twice_as_long(trial, kLongCycles);
  if (does == "asks_for_too_much") ask_for_too_much(trial);
  if (does == "writes_out_of_bounds") write_out_of_bounds(trial);
  if (does == "waits_by_events") pace_by_host(trial, gpulift::Clock::kUnheld);
  if (does == "waits_by_wall_clock") pace_by_host(trial, gpulift::Clock::kHost);
  if (does == "draws_power") draw_power(trial);
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "Is what a device does timed and charged rightly, and does what breaks it cost its own case alone?",
    .expectation = R"(
        Device time times SM clock is the cycles that a kernel spun. A step that the host bounds takes 3 ms by events,
        by the wall clock the kernel behind the last step of a window besides. One spinning thread draws little more
        than an idle card, the triad several times as much. An arm that does not fit is skipped and what it took is
        free; a write out of bounds is an error, and the next case gets a new process and a new context.)",
    .arms = {"baseline", "other"},
    .sweep = {{"does",
               {"spins_short", "spins_long", "asks_for_too_much", "writes_out_of_bounds", "waits_by_events",
                "waits_by_wall_clock", "draws_power"}}},
    .quick = {{}},
    .run = run,
};
