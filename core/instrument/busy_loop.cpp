// What ./gpulift doctor --instrument measures where there is no GPU: arithmetic that needs no memory, so that nothing
// but the processor's own pace can vary.
#include <cstdint>
#include <memory>

#include "core/harness/technique.hpp"

namespace {

constexpr int kRounds = 10'000;
constexpr std::uint64_t kResult = 4'650'432'495'379'556'241ULL;

/// A dependent chain that no compiler can shorten. The constants are those of Knuth's MMIX generator.
std::uint64_t chain() {
  volatile std::uint64_t state = 1;
  for (int i = 0; i < kRounds; ++i) state = state * 6364136223846793005ULL + 1442695040888963407ULL;
  return state;
}

void run(gpulift::Trial& trial) {
  const auto result = std::make_shared<std::uint64_t>(0);
  trial.check({.meaning = "exact number",
               .poison = [result](auto) { *result = 0; },
               .error = [result](auto) { return *result == kResult ? 0.0 : 1.0; }});
  trial.cost({.items = kRounds, .roof = {}});
  const auto arm = [&](const char* name, int chains) {
    return gpulift::Arm{.name = name,
                        .make = [result, chains]() -> gpulift::Step {
                          return [result, chains](auto) {
                            for (int i = 0; i < chains; ++i) *result = chain();
                          };
                        },
                        .clock = gpulift::Clock::kHost};
  };
  trial.compare({arm("once", 1), arm("twice", 2)});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "Does twice the work take twice the time?",
    .expectation = "The ratio is 2.",
    .gpus = 0,
    .arms = {"once", "twice"},
    .quick = {{}},
    .run = run,
};
