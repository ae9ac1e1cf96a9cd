#pragma once

#include <optional>
#include <string>

#include "core/harness/json.hpp"
#include "core/harness/technique.hpp"
#include "core/harness/window.hpp"

namespace gpulift {

/// Whether core/registers/roofs.json has a roof of that name.
bool is_roof(const std::string& name);

/// Whether it is one of products on a GPU, under which a card draws all the power that it can.
bool draws_power(const std::string& roof);

/// What of a step counts towards its roof: operations or bytes.
double work_under_roof(const Cost& cost);

/// The most that physics allows on the GPU with these facts (a record's context.gpu) for a roof: bytes/s for memory and
/// links, operations/s for "gemm/<type>", at the highest clock. None where the facts do not say.
std::optional<double> physical_limit(const std::string& roof, const nlohmann::ordered_json& gpu);

/// Dense operations per clock and multiprocessor of the matrix units (fp32: of the ordinary units) for an architecture
/// (90 = 9.0). None for a type that the architecture lacks, or an architecture that is not known.
std::optional<double> operations_per_clock(int architecture, const std::string& type);

/// Whether a window's seconds of CPU, user and system, are more than all cores have in that time, and a tick of 10 ms:
/// some kernels book a thread's time late (seen: 62 ms in a window of 2.7 ms). False where the cores are not known: 0.
bool exceeds_all_cores(double cpu_s, double window_s, int cores);

/// Whether a window's device time cannot be that of its steps, by what the host saw of them: marks were made elsewhere
/// than around the work, or tell another time. Of lead-in steps all may still run when a window begins. An arm is wrong
/// if all of its windows are: of 6,070 arms on record the least of an arm's ratios of host to device was 0.9999
/// to 1.32, and 1.47 and 1.50 of DataParallel on four GPUs, of which marks see one.
bool tells_other_time(const Window& window, std::int64_t steps, std::int64_t lead_in_steps);

/// How far above the limit a measured rate may read before it is refused.
inline constexpr double kImplausible = 1.05;

}  // namespace gpulift
