#pragma once

#include <cstdint>
#include <functional>

#include "step_graph.hpp"
#include "training_comparison.hpp"

namespace gpulift {

/// Options of an arm whose steps replay a graph of `part`. Its metrics are "graph_nodes_per_step" and what `metrics`
/// adds, which may take steps and must wait for them. `seed` is the trial's.
TrainingComparison::ArmOptions graph_arm(const TrainingComparison& comparison, const TrainingOptions& options,
                                         StepGraph::Part part, std::uint64_t seed,
                                         const std::function<Metrics(TrainingRun&, StepGraph&)>& metrics = {});

}  // namespace gpulift
