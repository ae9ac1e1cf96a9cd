#include <dlfcn.h>

#include <stdexcept>

#include "core/host/testing/counted_spin.hpp"

namespace {

using namespace gpulift::testing_techniques;

/// Whether this process has opened the library that counts launches, which it does only to count.
bool counts() { return dlopen("libgpulift_launch_counter.so", RTLD_NOW | RTLD_NOLOAD) != nullptr; }

void run(gpulift::Trial& trial) {
  const Counter counter = make_counter(trial.device());
  trial.check(expect_one(counter));
  gpulift::Arm other = spinning_arm("other", counter, 100'000);
  other.make = [make = other.make] {
    return [step = make().step()](gpulift::StreamHandle stream) {
      if (counts()) throw std::runtime_error("not while it is counted");
      step(stream);
    };
  };
  trial.compare({spinning_arm("baseline", counter, 100'000), std::move(other)});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What is left of a record where counting the launches of a step fails?",
    .expectation = "All but that count, and a note.",
    .whole_steps = true,
    .arms = {"baseline", "other"},
    .quick = {{}},
    .run = run,
};
