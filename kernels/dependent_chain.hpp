#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

namespace gpulift {

/// How a kernel of a chain is launched behind the one before it.
enum class ChainLaunch {
  kSerial,       // it starts when the one before has ended
  kProgrammatic  // it starts while the one before runs, and waits for its results (programmatic dependent launch)
};

/// Launches so many kernels of one warp, each of which needs what the one before it left: it reads the value (device
/// memory), lasts `cycles`, and writes the next one.
void dependent_chain(std::int64_t kernels, std::int64_t cycles, std::uint64_t* value, ChainLaunch launch,
                     cudaStream_t stream);

/// What a chain makes of a value. It depends on the number of kernels and on each having seen the result of the last.
std::uint64_t after_chain(std::int64_t kernels, std::uint64_t value);

/// Why a device of that architecture (10 * major + minor) has no ChainLaunch::kProgrammatic; empty: it has.
std::string why_no_programmatic_launch(int architecture);

}  // namespace gpulift
