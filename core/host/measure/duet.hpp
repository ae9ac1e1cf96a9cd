#pragma once

#include "case_run.hpp"
#include "core/host/record/record.hpp"

namespace gpulift {

/// Times one arm of two builds of a technique against each other, in one process.
void measure_duet(const Job& job, LaunchContext& launch, const Technique& head, const Technique& base,
                  CaseRecord& record);

}  // namespace gpulift
