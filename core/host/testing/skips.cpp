#include "core/host/testing/busy_work.hpp"

namespace {

using namespace gpulift::testing_techniques;

void run(gpulift::Trial& trial) { trial.skip("not on this machine", "use another machine"); }

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What becomes of a case that says it cannot run?",
    .expectation = "It is skipped with that reason and remedy.",
    .gpus = 0,
    .arms = {"baseline", "other"},
    .quick = {{}},
    .run = run,
};
