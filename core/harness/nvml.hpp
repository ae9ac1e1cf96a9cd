#pragma once

#include <functional>
#include <memory>
#include <string>
#include <variant>

#include "gpu_health.hpp"
#include "gpu_sample.hpp"

namespace gpulift {

/// One GPU as the NVIDIA management library sees it. The library is opened at run time and never linked, so that every
/// program starts on a machine without a driver. Copies share the library, which is closed with the last of them.
class Nvml {
 public:
  /// The card with this PCI bus id (as cudaDeviceGetPCIBusId gives it; CUDA_VISIBLE_DEVICES does not renumber it) or
  /// UUID ("GPU-..."). Where that is not possible: why, in one line.
  static std::variant<Nvml, std::string> open(const std::string& card,
                                              const std::string& library = "libnvidia-ml.so.1");

  GpuFacts facts() const;
  /// Reads only: no counter is cleared and no setting changed.
  GpuHealth health() const;
  /// May be called from any thread.
  GpuSample sample() const;
  /// What takes samples one after the other, for Telemetry. Where the card counts it and the driver permits (GPM,
  /// Hopper on), a sample also has activities and rates since the one before that has them: not each sample, since the
  /// card renews the counters every 100 ms, and shorter intervals are not valid. May be called from any thread; copies
  /// go on together.
  std::function<GpuSample()> sampling(double activity_interval_s = 0.1) const;

 private:
  struct Card;
  explicit Nvml(std::shared_ptr<const Card> card);

  std::shared_ptr<const Card> card_;
};

}  // namespace gpulift
