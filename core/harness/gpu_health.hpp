#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpu_sample.hpp"
#include "json.hpp"

namespace gpulift {

/// What the management library says about the state of one GPU: its errors, links, limits and other users. A value that
/// driver or card does not give is absent.
struct GpuHealth {
  using Count = std::optional<std::uint64_t>;

  /// Volatile counters start with the driver, aggregate ones live in the card.
  struct Ecc {
    std::optional<bool> enabled;
    std::optional<bool> pending;  // after the next reset
    Count corrected_volatile;
    Count uncorrected_volatile;
    Count corrected_aggregate;
    Count uncorrected_aggregate;
  };
  /// Rows of memory that spare rows stand in for, by the kind of error that made it so.
  struct RowRemapping {
    std::uint64_t correctable = 0;
    std::uint64_t uncorrectable = 0;
    bool pending = false;  // takes effect with the next reset
    bool failure = false;  // the spare rows were not enough
  };
  struct NvLink {
    int link = 0;
    bool active = false;
    std::optional<int> version;
    Count errors;      // replays, recoveries, CRC and ECC errors together
    Count crc_errors;  // of them: what arrived damaged, and came again without anybody else noticing
    Count replays;     // of them: what was sent again, since it arrived damaged at the other end
    Count ecc_errors;  // of them: what arrived damaged and was mended there
  };
  struct Memory {
    std::uint64_t total_bytes = 0;
    std::uint64_t free_bytes = 0;
    std::uint64_t used_bytes = 0;
    std::uint64_t reserved_bytes = 0;
  };
  struct Process {
    std::uint64_t pid = 0;
    Count used_bytes;
  };

  GpuFacts facts;
  GpuSample now;
  Ecc ecc;
  std::optional<RowRemapping> row_remapping;
  std::optional<bool> retired_pages_pending;  // of cards older than row remapping
  Count pcie_replays;
  std::vector<NvLink> nvlinks;
  std::optional<double> min_power_limit_w;
  std::optional<double> max_power_limit_w;
  std::optional<double> application_sm_clock_hz;
  std::optional<unsigned long long> throttle_reasons;  // bits, see throttle_names()
  std::optional<double> slowdown_temperature_c;
  std::optional<double> shutdown_temperature_c;
  std::optional<double> temperature_margin_c;  // left until the card slows itself down
  std::optional<Memory> memory;
  std::optional<std::vector<Process>> other_processes;  // that compute; this process is left out
  std::optional<bool> persistence_mode;
  std::string compute_mode;  // default, exclusive or prohibited; empty where unknown
};

/// As one object with keys in base units. What is absent has no key, nor has a group of which everything is.
nlohmann::ordered_json health_json(const GpuHealth& health);

}  // namespace gpulift
