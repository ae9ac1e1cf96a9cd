// Stands in for nvml.cpp in a build without the CUDA toolkit, which has no nvml.h.
#include <utility>

#include "nvml.hpp"

namespace gpulift {

struct Nvml::Card {};

Nvml::Nvml(std::shared_ptr<const Card> card) : card_(std::move(card)) {}

std::variant<Nvml, std::string> Nvml::open(const std::string& /*card*/, const std::string& /*library*/) {
  return "built without the CUDA toolkit";
}

GpuFacts Nvml::facts() const { return {}; }

GpuHealth Nvml::health() const { return {}; }

GpuSample Nvml::sample() const { return {}; }

}  // namespace gpulift
