#include "core/host/testing/busy_work.hpp"

namespace {

using namespace gpulift::testing_techniques;

void run(gpulift::Trial&) {}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What becomes of a technique that compares nothing?",
    .expectation = "An error that says so.",
    .gpus = 0,
    .arms = {"baseline", "other"},
    .quick = {{}},
    .run = run,
};
