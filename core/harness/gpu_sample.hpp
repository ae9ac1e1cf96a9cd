#pragma once

#include <optional>
#include <string>
#include <vector>

namespace gpulift {

/// What the management library says about one GPU, read once. A value that it does not give is absent.
struct GpuFacts {
  std::string name;
  std::string uuid;  // "GPU-..."; identifies the card, so it is never published: see card_id()
  std::string driver;
  std::string vbios;
  std::optional<double> power_limit_w;  // the one in force
  std::optional<double> default_power_limit_w;
  std::optional<double> max_sm_clock_hz;
  std::optional<double> max_memory_clock_hz;
  std::optional<int> pcie_max_generation;
  std::optional<int> pcie_max_width;
  bool has_c2c = false;                           // NVLink-C2C to the host's processor
  std::optional<int> nvlink_links;                // that are active
  std::optional<double> nvlink_link_bytes_per_s;  // of the slowest active link, in each direction, as signalled
  std::optional<bool> ecc;
  std::optional<bool> mig;
};

/// The state of one GPU at one moment. A value that the card does not give is absent.
struct GpuSample {
  double time_s = 0;  // steady clock, as now_s()
  std::optional<double> sm_clock_hz;
  std::optional<double> memory_clock_hz;
  std::optional<double> power_w;   // instantaneous where the driver gives it
  std::optional<double> energy_j;  // counter since the driver was loaded
  std::optional<double> temperature_c;
  std::optional<double> gpu_utilisation;               // 0 to 1, over the driver's own sampling period
  std::optional<unsigned long long> throttle_reasons;  // bits as in nvml.h, see throttle_names()
  std::optional<int> pcie_generation;
  std::optional<int> pcie_width;
  // Means over the time since the sample before that has them: see Nvml::sampling(). Fractions are from 0 to 1.
  std::optional<double> tensor_activity;      // of the time, of the multiprocessors' tensor units
  std::optional<double> sm_activity;          // of the multiprocessors
  std::optional<double> dram_activity;        // of the memory's peak rate
  std::optional<double> nvjpg_activity;       // of the time, mean of the JPEG decoders
  std::optional<double> pcie_rx_bytes_per_s;  // to the card
  std::optional<double> pcie_tx_bytes_per_s;
  std::optional<double> nvlink_rx_bytes_per_s;  // of all links together
  std::optional<double> nvlink_tx_bytes_per_s;
};

/// Names of the set bits, e.g. {"sw_power_cap"}. "gpu_idle" is left out: an idle card is not throttled. Bits that have
/// no name here come as "other_0x...".
std::vector<std::string> throttle_names(unsigned long long reasons);

}  // namespace gpulift
