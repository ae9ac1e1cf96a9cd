#include <cuda_runtime_api.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/cuda/device.hpp"
#include "core/cuda/handles.hpp"
#include "core/harness/technique.hpp"
#include "kernels/fill.hpp"
#include "kernels/spin.hpp"
#include "workloads/device_time.hpp"

namespace {

using gpulift::check;
using gpulift::Device;
using gpulift::StreamHandle;
using gpulift::UniqueStream;
using gpulift::Work;

// Short kernels of a step, each of which the host waits for: several kernels of the background go by meanwhile, since
// some ten requests in a row find a place beside the last blocks of one.
constexpr int kRequests = 40;
constexpr int kPile = 64;  // background kernels ahead of a step: more than its requests can wait for
constexpr std::int64_t kBackgroundUs = 1000;

UniqueStream stream_of_priority(int priority) {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority));
  return UniqueStream(stream);
}

/// Kernels of a millisecond, whose blocks take all threads of the device and are replaced as they end.
class Background {
 public:
  Background(Device& device, std::int64_t block_us, int priority, std::uint64_t seed)
      : threads_(threads_of(device)),
        rounds_(rounds_for(device, block_us)),
        count_(static_cast<std::size_t>(kBackgroundUs / block_us * device.multiprocessors() * threads_)),
        input_(device, count_),
        output_(device, count_),
        stream_(stream_of_priority(priority)) {
    gpulift::fill_normal(input_.data(), count_, seed, stream_.get());
    check(cudaStreamSynchronize(stream_.get()));
  }

  void pile_up() const {
    for (int i = 0; i < kPile; ++i) {
      gpulift::fma_chain(input_.data(), output_.data(), count_, rounds_, stream_.get());
    }
  }
  void wait() const { check(cudaStreamSynchronize(stream_.get())); }
  bool runs() const {
    const cudaError_t status = cudaStreamQuery(stream_.get());
    if (status != cudaErrorNotReady) check(status);
    static_cast<void>(cudaGetLastError());  // it counts as one
    return status == cudaErrorNotReady;
  }

 private:
  static int threads_of(const Device& device) {
    int threads = 0;
    check(cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerMultiProcessor, device.index()));
    return threads;
  }
  /// Of a full multiprocessor of 128 FP32 units.
  int rounds_for(const Device& device, std::int64_t block_us) const {
    constexpr int kUnits = 128;
    return static_cast<int>(gpulift::cycles_in(device, 1e-6 * static_cast<double>(block_us)) * kUnits / threads_);
  }

  int threads_;
  int rounds_;
  std::size_t count_;
  gpulift::DeviceBuffer<float> input_;
  gpulift::DeviceBuffer<float> output_;
  UniqueStream stream_;
};

void run(gpulift::Trial& trial) {
  Device& device = trial.device();
  int least = 0;
  int greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  const Background background(device, trial.number("block_us"), least, trial.seed());
  const UniqueStream equal = stream_of_priority(least);
  const UniqueStream high = stream_of_priority(greatest);
  const gpulift::DeviceBuffer<std::uint64_t> count(device, 1);
  // The first launch of a kernel loads it, which waits for all that runs: the background, too.
  gpulift::launch_empty(count.data(), equal.get());
  check(cudaDeviceSynchronize());

  trial.cost({.items = kRequests, .item = "request", .roof = {}});
  trial.check({.meaning = "count of short kernels",
               .poison =
                   [&](StreamHandle stream) {
                     check(cudaMemsetAsync(count.data(), 0, count.bytes(), stream));
                     check(cudaStreamSynchronize(stream));  // the requests are on streams that do not wait for this one
                   },
               .error =
                   [&](StreamHandle stream) {
                     std::uint64_t found = 0;
                     check(cudaMemcpyAsync(&found, count.data(), sizeof found, cudaMemcpyDeviceToHost, stream));
                     check(cudaStreamSynchronize(stream));
                     return std::abs(static_cast<double>(found) - kRequests);
                   },
               .tolerance = 0});

  const auto requests_on = [counter = count.data()](StreamHandle stream) {
    return [counter, stream](StreamHandle) {
      for (int i = 0; i < kRequests; ++i) {
        gpulift::launch_empty(counter, stream);
        check(cudaStreamSynchronize(stream));
      }
    };
  };
  const auto beside_background = [&](StreamHandle stream) {
    return [&background, requests = requests_on(stream)] {
      return Work([&background, requests](StreamHandle given) {
               requests(given);
               if (!background.runs()) throw std::runtime_error("the background ended before the requests");
             })
          .before([&background] { background.pile_up(); })
          .rest([&background] { background.wait(); });
    };
  };
  // The host waits for each request, so its clock judges.
  constexpr auto kHost = gpulift::Clock::kHost;
  trial.compare({{.name = "equal_priority", .make = beside_background(equal.get()), .clock = kHost},
                 {.name = "high_priority", .make = beside_background(high.get()), .clock = kHost},
                 {.name = "idle_device", .make = [&] { return requests_on(equal.get()); }, .clock = kHost}});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "How much sooner is a short kernel of high priority done on a device that is busy with others?",
    .expectation = R"(
        The background's kernels last 1 ms, and their blocks take every thread there is. A short kernel of equal
        priority gets a place when the kernel that runs has no more blocks to start, after about 1 ms. One of high
        priority goes ahead of blocks that wait, but evicts none that run: it waits for the first block to end, with
        launch and wait 8 us, as on an idle device, and half a block of 10 us, 13 us: 75 times sooner (an H200: 1240 and
        18 us). Blocks of 200 us come in 5 rounds, and their ends drift apart: the first is near. There high priority
        takes 28 us (an H200). Of equal priority some 8 requests in a row go by while the last round of a kernel runs,
        and the next waits for the last round of the next, 1 ms: 0.15 ms in the mean, 5 times. They do not preempt.)",
    .predict = {{.arm = "idle_device", .on = "nvidia", .step_time_s = {{288e-6, 352e-6}}},
                {.arm = "high_priority", .cases = {{"block_us", 10}}, .on = "nvidia", .speedup = {{67.5, 82.5}}},
                {.arm = "high_priority", .cases = {{"block_us", 200}}, .on = "nvidia", .speedup = {{4.5, 5.5}}}},
    .found = R"(
        An H200, four launches of 40 requests a step. idle_device has 9.2 to 12 us a request, not 8: launch and wait are
        the host's and differ from host to host; records of five requests a step (45 us) have 9 on another host. Beside
        blocks of 10 us high priority is as expected, 17 to 20 us a request of 1236, 63 to 74 times for 67 or more.
        Beside blocks of 200 us it has 1.94, not 5: equal priority takes 125 us a request, as expected, high priority
        64, not 28; in one launch equal priority took 155, and high priority has 2.4. The 28 were of the five requests,
        all of which came beside the last blocks of one kernel, when there was place, a known error of these records.
        Those 54 us beyond an idle device are between half a block, 100 us, which rounds in step would cost, and the 10
        or so of ends that drifted apart, as had been assumed: so rounds stay partly in step, which is reckoned, since
        no one looked at the blocks' ends.)",
    .arms = {"equal_priority", "high_priority", "idle_device"},
    .controls = {"idle_device"},  // what no priority can pass
    .l2 = gpulift::Cache::kNone,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"block_us", {10, 200}}},
    .quick = {{{"block_us", 10}}},
    .run = run,
};
