#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/cuda/device.hpp"
#include "core/cuda/device_clock.hpp"
#include "core/cuda/handles.hpp"
#include "core/harness/host_runner.hpp"
#include "device_session.hpp"
#include "hold_capacity.hpp"
#include "launch_counter.hpp"
#include "spin_cost.hpp"

namespace gpulift {
namespace {

constexpr int kWarmUpSteps = 2;        // ahead of one that a profiler looks at
constexpr int kEmptyLaunches = 50;     // a tenth of a millisecond, and far from a full queue
constexpr double kHoldLimit_s = 0.05;  // far longer than queueing a window takes, unless the launch queue is full

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// Windows of an arm that enqueues on a stream.
class StreamRunner : public ArmRunner {
 public:
  StreamRunner(Work work, Clock clock, cudaStream_t stream, Hold& hold, SmClock& sm_clock)
      : work_(std::move(work)), step_(work_.step()), clock_(clock), stream_(stream), hold_(hold), sm_clock_(sm_clock) {}

  Window run(std::int64_t lead_in_steps, std::int64_t steps) override {
    if (work_.has_before()) {  // a clean device ahead of it
      for (; lead_in_steps > 0; --lead_in_steps) step_(stream_);
      check(cudaStreamSynchronize(stream_));
    }
    const auto seen = begin_afresh(work_);
    Window window = clock_ == Clock::kHost ? run_by_host(lead_in_steps, steps) : run_by_device(lead_in_steps, steps);
    window.precondition = seen;
    work_.do_rest();
    if (clock_ != Clock::kDevice) window.empty_launch_s = empty_launch_s();
    return window;
  }
  std::int64_t max_steps() const override { return work_.has_before() ? 1 : capacity_.max_steps(); }
  bool begins_afresh() const override { return work_.has_before(); }

  std::optional<double> launches_per_step() override {
    const int steps = work_.has_before() ? 1 : 2;
    work_.do_before();
    const auto launches = launches_during(launch_counter_library(), [this, steps] {
      for (int i = 0; i < steps; ++i) step_(stream_);
      check(cudaDeviceSynchronize());  // a step may have streams of its own
    });
    work_.do_rest();
    return launches ? std::optional(static_cast<double>(*launches) / steps) : std::nullopt;
  }

  void profile_step() override {
    for (int i = 0; i <= kWarmUpSteps; ++i) {
      const bool seen = i == kWarmUpSteps;
      work_.do_before();
      if (seen) check(cudaProfilerStart());
      step_(stream_);
      check(cudaDeviceSynchronize());  // a step may have streams of its own
      if (seen) check(cudaProfilerStop());
      work_.do_rest();
    }
  }

 private:
  // The steps' own host cost is the subject: nothing holds the stream, and the wall clock judges.
  Window run_by_host(std::int64_t lead_in_steps, std::int64_t steps) {
    for (std::int64_t i = 0; i < lead_in_steps; ++i) step_(stream_);
    sm_clock_.sample_begin(stream_);
    check(cudaEventRecord(begin_.get(), stream_));
    check(cudaStreamSynchronize(stream_));
    Window window;
    const CpuMeter cpu(/*with_children=*/false);
    window.start_s = now_s();
    for (std::int64_t i = 0; i < steps; ++i) step_(stream_);
    window.enqueue_s = now_s() - window.start_s;
    check(cudaEventRecord(end_.get(), stream_));
    check(cudaStreamSynchronize(stream_));
    window.host_s = now_s() - window.start_s;
    window.cpu_s = cpu.used_s();
    sm_clock_.sample_end(stream_);
    check(cudaStreamSynchronize(stream_));
    read_clocks(window);
    return window;
  }

  // A step may be more launches than one, and the queue holds a limited number of launches, the lead-in's included:
  // what does not fit of the lead-in runs before the hold. A hold that ends by its limit has found the queue full.
  Window run_by_device(std::int64_t lead_in_steps, std::int64_t steps) {
    Window window;
    const bool hold = clock_ == Clock::kDevice && capacity_.can_hold();
    const auto [held_lead_in, held] = capacity_.split(lead_in_steps, steps);
    for (std::int64_t i = held_lead_in; i < lead_in_steps; ++i) step_(stream_);
    if (hold) {
      if (held_lead_in < lead_in_steps) check(cudaStreamSynchronize(stream_));  // a clean queue behind the hold
      hold_.engage(stream_, kHoldLimit_s);
    }
    std::int64_t queued = 0;  // steps issued while the hold held
    const auto issue = [&](std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) {
        step_(stream_);
        if (hold && !hold_.timed_out()) ++queued;
      }
    };
    issue(held_lead_in);
    sm_clock_.sample_begin(stream_);
    check(cudaEventRecord(begin_.get(), stream_));
    const CpuMeter cpu(/*with_children=*/false);
    const double issued_s = now_s();
    issue(held);
    const double released_s = now_s();
    hold_.release();
    for (std::int64_t i = held; i < steps; ++i) step_(stream_);
    window.enqueue_s = now_s() - issued_s;
    check(cudaEventRecord(end_.get(), stream_));
    sm_clock_.sample_end(stream_);
    check(cudaStreamSynchronize(stream_));
    window.start_s = hold ? released_s : issued_s;
    window.host_s = now_s() - window.start_s;
    window.cpu_s = cpu.used_s();
    read_clocks(window);
    if (hold && hold_.timed_out()) {
      capacity_.saw_time_out(queued);
    } else if (hold) {
      const double issue_s = (released_s - issued_s) / static_cast<double>(held);
      window.held = capacity_.saw_release(held, steps, issue_s, *window.device_s / static_cast<double>(steps));
    }
    return window;
  }

  // The stream is empty, and what the device needs for such a kernel is less: nothing but the host's work is timed.
  double empty_launch_s() const {
    const double start_s = now_s();
    for (int i = 0; i < kEmptyLaunches; ++i) enqueue_spin(stream_, 0, nullptr);
    const double issued_s = now_s() - start_s;
    check(cudaStreamSynchronize(stream_));
    return issued_s / kEmptyLaunches;
  }

  void read_clocks(Window& window) {
    float elapsed_ms = 0;
    check(cudaEventElapsedTime(&elapsed_ms, begin_.get(), end_.get()));
    window.device_s = static_cast<double>(elapsed_ms) * 1e-3;
    window.sm_clock_hz = sm_clock_.mean_hz();
  }

  Work work_;
  Step step_;
  Clock clock_;
  cudaStream_t stream_;
  Hold& hold_;
  SmClock& sm_clock_;
  UniqueEvent begin_ = make_timing_event();
  UniqueEvent end_ = make_timing_event();
  HoldCapacity capacity_;
};

/// One thread that spins for a number of cycles, behind whatever the stream holds.
class SpinWork : public ExtraWork {
 public:
  /// `runner` times back-to-back spins of so many cycles.
  using MakeRunner = std::function<std::unique_ptr<ArmRunner>(Step)>;
  SpinWork(cudaStream_t stream, Device& device, const MakeRunner& runner) : stream_(stream), spun_(device, 1) {
    *spun_.data() = 0;
    std::uint64_t cycles = 0;
    const auto timed = runner([this, &cycles](StreamHandle) { enqueue_spin(stream_, cycles, spun_.data()); });
    const auto run = [&](std::uint64_t of_cycles) {
      cycles = of_cycles;
      return timed->run(0, kSpins);
    };
    cost_ = measure_spin_cost(run, kSpins);
  }

  void add(double work_s, std::optional<double> sm_clock_hz) override {
    const double cycles = std::max(0.0, work_s - cost_.launch_s) * sm_clock_hz.value_or(cost_.clock_hz);
    enqueue_spin(stream_, static_cast<std::uint64_t>(cycles), spun_.data());
  }
  double added_s(std::optional<double> sm_clock_hz) const override {
    return cost_.launch_s + static_cast<double>(*spun_.data()) / sm_clock_hz.value_or(cost_.clock_hz);
  }

 private:
  static constexpr std::int64_t kSpins = 64;

  cudaStream_t stream_;
  PinnedBuffer<unsigned long long> spun_;
  SpinCost cost_{};
};

class CudaSession : public DeviceSession {
 public:
  explicit CudaSession(int index) : device_(index), stream_(make_stream()), sm_clock_(device_.multiprocessors()) {
    hold_.engage(stream_.get(), kHoldLimit_s);  // loads the kernels now: loading them behind a hold would deadlock
    hold_.release();
    sm_clock_.sample_begin(stream_.get());
    sm_clock_.sample_end(stream_.get());
    enqueue_spin(stream_.get(), 1, nullptr);
    synchronize();
  }

  Device& device() override { return device_; }
  StreamHandle stream() override { return stream_.get(); }
  void synchronize() override { check(cudaDeviceSynchronize()); }
  bool healthy() override { return cudaDeviceSynchronize() == cudaSuccess && cudaGetLastError() == cudaSuccess; }

  std::unique_ptr<ArmRunner> runner(Work work, Clock clock) override {
    return std::make_unique<StreamRunner>(std::move(work), clock, stream_.get(), hold_, sm_clock_);
  }

  std::unique_ptr<ExtraWork> extra_work() override {
    return std::make_unique<SpinWork>(stream_.get(), device_,
                                      [this](Step step) { return runner(std::move(step), Clock::kDevice); });
  }

  void reset_peak() override {
    synchronize();
    device_.memory().reset_peak();
    device_.pinned_memory().reset_peak();
    live_device_bytes_ = device_.memory().live_bytes();
    live_pinned_bytes_ = device_.pinned_memory().live_bytes();
    free_bytes_ = device_.free_bytes();
  }

  Peak peak() override {
    const std::size_t free_now = device_.free_bytes();
    const std::size_t taken = free_bytes_ > free_now ? free_bytes_ - free_now : 0;
    return {std::max(device_.memory().peak_bytes() - live_device_bytes_, taken),
            device_.pinned_memory().peak_bytes() - live_pinned_bytes_};
  }

  void push_range(const std::string& name) override { nvtxRangePushA(name.c_str()); }
  void pop_range() override { nvtxRangePop(); }

 private:
  Device device_;
  UniqueStream stream_;
  Hold hold_;
  SmClock sm_clock_;
  std::size_t live_device_bytes_ = 0;
  std::size_t live_pinned_bytes_ = 0;
  std::size_t free_bytes_ = 0;
};

std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    text += digits.data();
  }
  return text;
}

bool driver_library_present() {
  void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (library != nullptr) dlclose(library);
  return library != nullptr;
}

NoDevice explain(cudaError_t status) {
  int driver = 0;
  int runtime = 0;
  static_cast<void>(cudaDriverGetVersion(&driver));
  static_cast<void>(cudaRuntimeGetVersion(&runtime));
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return why_no_device(static_cast<int>(status), driver_library_present(),
                       visible != nullptr ? std::optional<std::string>(visible) : std::nullopt, driver, runtime);
}

int attribute(cudaDeviceAttr name, int index) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, name, index));
  return value;
}

}  // namespace

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  static_cast<void>(cudaGetLastError());
  return 0;
}

std::variant<DeviceFacts, NoDevice> find_device(int index) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    static_cast<void>(cudaGetLastError());
    return explain(status == cudaSuccess ? cudaErrorNoDevice : status);
  }
  if (index < 0 || index >= count) {
    return NoDevice{"there is no GPU " + std::to_string(index) + ": " + std::to_string(count) + " visible",
                    "choose --gpu 0 to " + std::to_string(count - 1)};
  }
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index));
  DeviceFacts facts;
  facts.uuid = uuid_text(properties.uuid);
  std::array<char, 32> bus_id{};
  check(cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), index));
  facts.pci_bus_id = bus_id.data();
  facts.gpu = {{"name", properties.name},
               {"card", card_id(facts.uuid)},
               {"architecture", 10 * properties.major + properties.minor},
               {"multiprocessors", properties.multiProcessorCount},
               {"memory_bytes", properties.totalGlobalMem},
               {"l2_bytes", properties.l2CacheSize},
               {"memory_bus_bits", properties.memoryBusWidth},
               {"max_sm_clock_hz", 1e3 * attribute(cudaDevAttrClockRate, index)},
               {"max_memory_clock_hz", 1e3 * attribute(cudaDevAttrMemoryClockRate, index)},
               {"copy_engines", properties.asyncEngineCount},
               {"ecc", properties.ECCEnabled != 0}};
  int driver = 0;
  int runtime = 0;
  check(cudaDriverGetVersion(&driver));
  check(cudaRuntimeGetVersion(&runtime));
  facts.software = {{"cuda_driver", version_text(driver)}, {"cuda_runtime", version_text(runtime)}};
  return facts;
}

std::unique_ptr<DeviceSession> open_device(int index) {
  // Spinning answers sooner than blocking does, and the host has nothing else to do while a window runs.
  check(cudaInitDevice(index, cudaDeviceScheduleSpin, cudaInitDeviceFlagsAreValid));
  return std::make_unique<CudaSession>(index);
}

}  // namespace gpulift
