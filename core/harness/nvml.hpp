#pragma once

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

 private:
  struct Card;
  explicit Nvml(std::shared_ptr<const Card> card);

  std::shared_ptr<const Card> card_;
};

}  // namespace gpulift
