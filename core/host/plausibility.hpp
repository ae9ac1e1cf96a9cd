#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace gpulift {

/// The most that physics allows on the GPU with these facts (a record's context.gpu) for a roof: bytes/s for memory and
/// links, operations/s for "gemm/<type>", at the highest clock. None where the facts do not say.
std::optional<double> physical_limit(const std::string& roof, const nlohmann::ordered_json& gpu);

/// Dense operations per clock and multiprocessor of the matrix units (fp32: of the ordinary units) for an architecture
/// (90 = 9.0). None for a type that the architecture lacks, or an architecture that is not known.
std::optional<double> operations_per_clock(int architecture, const std::string& type);

/// How far above the limit a measured rate may read before it is refused.
inline constexpr double kImplausible = 1.05;

}  // namespace gpulift
