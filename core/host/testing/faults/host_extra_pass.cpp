#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/harness/technique.hpp"
#include "core/host/testing/faults/fault.hpp"

namespace {

using namespace gpulift::testing_faults;
using Numbers = std::vector<float>;

constexpr std::size_t kCount = std::size_t{1} << 21;  // 8 MiB an array
constexpr float kInput = 3;
constexpr float kFactor = 2;
constexpr float kSummand = 1;
constexpr float kOutput = kFactor * kInput + kSummand;

void scale_and_shift(const Numbers& input, Numbers& output) {
  if (is_faulty()) {
    std::transform(input.begin(), input.end(), output.begin(), [](float x) { return kFactor * x; });
    std::transform(output.begin(), output.end(), output.begin(), [](float x) { return x + kSummand; });
  } else {
    std::transform(input.begin(), input.end(), output.begin(), [](float x) { return kFactor * x + kSummand; });
  }
}

void run(gpulift::Trial& trial) {
  const Numbers input(kCount, kInput);
  Numbers output(kCount);
  trial.cost({.bytes = 2.0 * kCount * sizeof(float), .roof = "host_memory"});
  trial.check({.meaning = "exact numbers",
               .poison = [&](gpulift::StreamHandle) { std::fill(output.begin(), output.end(), 0.0F); },
               .error =
                   [&](gpulift::StreamHandle) {
                     return static_cast<double>(kCount) -
                            static_cast<double>(std::count(output.begin(), output.end(), kOutput));
                   }});
  trial.compare({{.name = "scale_and_shift",
                  .make = [&] { return [&](gpulift::StreamHandle) { scale_and_shift(input, output); }; },
                  .clock = gpulift::Clock::kHost}});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "Is it found when a fused operation on host memory falls into two passes?",
    .expectation = R"(
        One pass reads and writes 8 MiB, and a line that is written is read before: 24 MiB. The second pass adds 16 MiB:
        1.7 times as long, up to 2 times where a cache holds the arrays.)",
    .gpus = 0,
    .arms = {"scale_and_shift"},
    .quick = {{}},
    .run = run,
};
