// Stands in for nvml.cpp in a build without CUDA, or without nvml.h, which not every toolkit brings.
#include <utility>

#include "nvml.hpp"

namespace gpulift {

struct Nvml::Card {};

Nvml::Nvml(std::shared_ptr<const Card> card) : card_(std::move(card)) {}

std::variant<Nvml, std::string> Nvml::open(const std::string& /*card*/, const std::string& /*library*/) {
  return "built without CUDA or nvml.h";
}

GpuFacts Nvml::facts() const { return {}; }

GpuHealth Nvml::health() const { return {}; }

GpuSample Nvml::sample() const { return {}; }

std::function<GpuSample()> Nvml::sampling(double /*activity_interval_s*/) const {
  return [] { return GpuSample{}; };
}

}  // namespace gpulift
