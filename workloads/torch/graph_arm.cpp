#include "graph_arm.hpp"

#include <memory>

namespace gpulift {

TrainingComparison::ArmOptions graph_arm(const TrainingComparison& comparison, const TrainingOptions& options,
                                         StepGraph::Part part, std::uint64_t seed,
                                         const std::function<Metrics(TrainingRun&, StepGraph&)>& metrics) {
  const auto current = std::make_shared<std::weak_ptr<StepGraph>>();
  TrainingComparison::ArmOptions arm_options;
  arm_options.wrap = [=, workload = comparison.workload(),
                      device = comparison.session().device()](const std::shared_ptr<TrainingRun>& run) {
    const auto rehearsal = [&] { return std::make_unique<TrainingRun>(workload, options, device, seed); };
    const auto graph = std::make_shared<StepGraph>(run, rehearsal, part);
    *current = graph;
    return [graph] { graph->step(); };
  };
  arm_options.graph_bytes = [current] { return current->lock()->passing_bytes(); };
  arm_options.metrics = [current, metrics](TrainingRun& run) {
    const auto graph = current->lock();
    Metrics found{{"graph_nodes_per_step", static_cast<double>(graph->nodes())}};
    if (metrics) found.merge(metrics(run, *graph));
    return found;
  };
  return arm_options;
}

}  // namespace gpulift
