#pragma once

#include <memory>
#include <string>
#include <variant>

#include "core/harness/json.hpp"
#include "core/harness/machine.hpp"
#include "core/harness/technique.hpp"
#include "core/harness/window.hpp"
#include "planted_runner.hpp"

namespace gpulift {

/// The device of one launch: its context, stream, timers and facts. The CUDA build has one implementation; a build
/// without CUDA only says why there is none.
class DeviceSession {
 public:
  virtual ~DeviceSession() = default;

  virtual Device& device() = 0;
  virtual StreamHandle stream() = 0;
  /// Waits for all work; throws gpulift::Error when any of it failed.
  virtual void synchronize() = 0;
  /// False once an error poisoned the context: nothing after it in this process can be trusted.
  virtual bool healthy() = 0;
  virtual std::unique_ptr<ArmRunner> runner(Work work, Clock clock) = 0;
  /// Work to slow an arm down with, in known amounts; finding out what it costs takes some 20 ms, or 0.3 s where the
  /// clock never gets flat.
  virtual std::unique_ptr<ExtraWork> extra_work() = 0;

  /// Bytes held in device and pinned memory: the most since the last reset, beyond what was held at the reset. Device
  /// bytes include what was allocated around our buffers, as far as it is still held now.
  struct Peak {
    std::size_t device_bytes;
    std::size_t pinned_bytes;
  };
  virtual void reset_peak() = 0;
  virtual Peak peak() = 0;

  /// A named range for profilers (NVTX), until pop_range().
  virtual void push_range(const std::string& name) = 0;
  virtual void pop_range() = 0;
};

/// A named range for as long as it lives; none without a device.
class Range {
 public:
  Range(DeviceSession* device, const std::string& name) : device_(device) {
    if (device_ != nullptr) device_->push_range(name);
  }
  ~Range() {
    if (device_ != nullptr) device_->pop_range();
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  DeviceSession* device_;
};

/// What is known of a device without making a context on it.
struct DeviceFacts {
  std::string uuid;  // never written to a record
  std::string pci_bus_id;
  nlohmann::ordered_json gpu;       // the record's context.gpu, as far as the runtime knows it
  nlohmann::ordered_json software;  // cuda_driver, cuda_runtime
};

/// How many GPUs the CUDA runtime sees; 0 where it cannot start.
int device_count();
std::variant<DeviceFacts, NoDevice> find_device(int index);
std::unique_ptr<DeviceSession> open_device(int index);

}  // namespace gpulift
