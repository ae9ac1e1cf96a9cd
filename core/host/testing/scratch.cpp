#include <fstream>

#include "core/host/testing/busy_work.hpp"

namespace {

using namespace gpulift::testing_techniques;

void run(gpulift::Trial& trial) {
  const gpulift::Scratch scratch = trial.scratch();
  const Output output = make_output();
  trial.version("ink", "1.2");
  trial.note("cores", std::to_string(trial.cores()));
  std::ofstream(scratch.path / "leaf") << "written";
  gpulift::Arm arm{.name = "other", .make = [&trial, output]() -> gpulift::Step {
                     const bool same_folder = std::filesystem::exists(trial.scratch().path / "leaf");
                     return [output, same_folder](gpulift::StreamHandle) { *output = same_folder ? 42 : 0; };
                   }};
  arm.worker = gpulift::Worker{};
  compare_with(trial, std::move(arm), output);
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "Do all arms of a case have the same folder for files?",
    .expectation = "Yes, and it is gone after the case.",
    .gpus = 0,
    .arms = {"baseline", "other"},
    .quick = {{}},
    .run = run,
};
