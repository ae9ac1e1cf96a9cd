#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/harness/technique.hpp"
#include "kernels/spin.hpp"

namespace {

using gpulift::Arm;
using gpulift::check;
using gpulift::StreamHandle;

void run(gpulift::Trial& trial) {
  const std::int64_t launches = trial.number("launches");
  const gpulift::DeviceBuffer<std::uint64_t> counter(trial.device(), 1);
  // The same kernel is checked and timed. Checked, it is given a counter; timed, it is given none and is empty.
  std::uint64_t* target = nullptr;

  trial.cost({.items = static_cast<double>(launches), .roof = {}});
  trial.check({.meaning = "count of launches",
               .poison =
                   [&](StreamHandle stream) {
                     check(cudaMemsetAsync(counter.data(), 0, counter.bytes(), stream));
                     target = counter.data();
                   },
               .error =
                   [&](StreamHandle stream) {
                     target = nullptr;
                     std::uint64_t count = 0;
                     check(cudaMemcpyAsync(&count, counter.data(), sizeof count, cudaMemcpyDeviceToHost, stream));
                     check(cudaStreamSynchronize(stream));
                     return std::abs(static_cast<double>(count) - static_cast<double>(launches));
                   },
               .tolerance = 0});

  const auto make = [&target, launches] {
    return [&target, launches](StreamHandle stream) {
      for (std::int64_t i = 0; i < launches; ++i) gpulift::launch_empty(target, stream);
    };
  };
  // The same steps twice: the clock is what differs. Host time ends when the host may go on and the device is done;
  // device time is that of kernels which were all queued before the first one ran.
  trial.compare({Arm{.name = "host_cost", .make = make, .clock = gpulift::Clock::kHost},
                 Arm{.name = "device_cost", .make = make, .clock = gpulift::Clock::kDevice}});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What does the launch of one empty kernel cost the host, and what does it cost the device?",
    .expectation = R"(
        The host writes a launch in about 2 us. The device needs about 1 us to finish one empty kernel and start the
        next that already waits in its queue. Since the host is the slower of the two, a train of n launches costs 2 us
        * n on the host's clock plus about 5 us to start and wait, and 1 us * n on the device's.)",
    .predict =
        {{.arm = "host_cost", .cases = {{"launches", 1}}, .on = "nvidia", .step_time_s = {{6.3e-6, 7.7e-6}}},
         {.arm = "host_cost", .cases = {{"launches", 1000}}, .on = "nvidia", .step_time_s = {{1.8e-3, 2.21e-3}}},
         {.arm = "device_cost", .cases = {{"launches", 1000}}, .on = "nvidia", .step_time_s = {{900e-6, 1.1e-3}}}},
    .found = R"(
        On an H200's host a launch takes 2.7 to 2.9 us, on the device 1.5: 1.4 and 1.5 times what was assumed. The 5 us
        to start and wait come once in a window, which has 4,134 steps of one launch each: such a step takes 2.7 us, not
        7.)",
    .ceiling = true,
    .launch_bound = true,
    .arms = {"host_cost", "device_cost"},
    .l2 = gpulift::Cache::kNone,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"launches", {1, 10, 200, 1000}}},
    .quick = {{{"launches", 200}}},
    .run = run,
};
