// A module as another version of the core headers would have made it.
#include "core/harness/module.hpp"
#include "core/harness/technique.hpp"

namespace gpulift {
const Technique technique{.question = "", .expectation = ""};
}  // namespace gpulift

extern "C" __attribute__((visibility("default"))) const gpulift::ModuleEntry gpulift_module;
const gpulift::ModuleEntry gpulift_module{"another tag", "testing/other_tag", &gpulift::technique};
