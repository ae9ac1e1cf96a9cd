// A library of its own, opened only where launches are counted: whoever does not count needs no CUPTI. Its two
// functions are plain C, for processes in any language.
#include <cupti.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>

namespace {

/// Functions of the driver, with any suffix: _v2 for versions, _ptsz for streams of threads, Async, Ex and types.
constexpr std::array<std::string_view, 5> kLaunches{"cuLaunchKernel", "cuLaunchCooperativeKernel", "cuGraphLaunch",
                                                    "cuMemcpy", "cuMemset"};

/// Counts from start() to its end, calls of every thread.
class Counter {
 public:
  Counter() = default;
  // Unsubscribed alone, CUPTI stays in the way of every call: a launch of 6.4 us took 7.1.
  ~Counter() {
    if (subscriber_ == nullptr) return;
    cuptiUnsubscribe(subscriber_);
    cuptiFinalize();
  }
  Counter(const Counter&) = delete;
  Counter& operator=(const Counter&) = delete;

  bool start() {
    return cuptiSubscribe(&subscriber_, see_call, &count_) == CUPTI_SUCCESS &&
           cuptiEnableDomain(1, subscriber_, CUPTI_CB_DOMAIN_DRIVER_API) == CUPTI_SUCCESS;
  }
  std::int64_t count() const { return count_; }

 private:
  static void CUPTIAPI see_call(void* count, CUpti_CallbackDomain /*domain*/, CUpti_CallbackId /*id*/,
                                const void* data) {
    const auto* call = static_cast<const CUpti_CallbackData*>(data);
    const std::string_view name = call->functionName;
    const bool launches = std::any_of(kLaunches.begin(), kLaunches.end(),
                                      [name](std::string_view launch) { return name.starts_with(launch); });
    if (launches && call->callbackSite == CUPTI_API_ENTER) ++*static_cast<std::atomic<std::int64_t>*>(count);
  }

  CUpti_SubscriberHandle subscriber_ = nullptr;
  std::atomic<std::int64_t> count_ = 0;
};

}  // namespace

extern "C" {

/// Begins to count what this process hands to its devices: kernels, copies, fills and graphs, each as one, whatever
/// library calls the driver for it. Null where CUPTI cannot tell, as when another profiler is attached. Calls are
/// slower until its end: nothing may be timed.
__attribute__((visibility("default"))) void* gpulift_launch_counter_start() {
  auto counter = std::make_unique<Counter>();
  return counter->start() ? counter.release() : nullptr;
}

/// Ends the counter, and returns its count. CUPTI wants the devices idle by then.
__attribute__((visibility("default"))) std::int64_t gpulift_launch_counter_stop(void* started) {
  const std::unique_ptr<Counter> counter(static_cast<Counter*>(started));
  return counter->count();
}

}  // extern "C"
