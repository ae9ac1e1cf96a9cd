#include "core/host/testing/busy_work.hpp"

namespace {

using namespace gpulift::testing_techniques;

void run(gpulift::Trial&) { throw std::runtime_error("thrown on purpose,\nin two lines"); }

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What becomes of a technique that throws?",
    .expectation = "An error with what it threw as the reason.",
    .gpus = 0,
    .arms = {"baseline", "other"},
    .quick = {{}},
    .run = run,
};
