#include "core/host/testing/faults/fault.hpp"
#include "core/host/testing/faults/fault_kernels.hpp"
#include "core/host/testing/faults/pattern_copy.hpp"

namespace {

using namespace gpulift::testing_faults;

/// What each block takes of its multiprocessor without a use for it.
std::size_t wasted_bytes(const gpulift::Device& device) {
  if (is_faulty()) return allow_most_shared_bytes(device.index());
  return 0;
}

void run(gpulift::Trial& trial) {
  const PatternCopy data(trial.device(), trial.seed());
  trial.cost(data.cost());
  trial.check(data.check());
  trial.compare({{.name = "copy", .make = [&] {
                    return [&, shared_bytes = wasted_bytes(trial.device())](gpulift::StreamHandle stream) {
                      copy_vectors(data.input(), data.output(), PatternCopy::kBytes, shared_bytes, stream);
                    };
                  }}});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "Is it found when shared memory leaves room for one block on a multiprocessor?",
    .expectation = R"(
        Eight blocks of 256 threads hide the latency of memory: 1 GiB at 4.2 TB/s, 256 us. One block has 4 KiB of loads
        in flight on each of 132 multiprocessors; with 1 us from its start to its end that reads 0.54 TB/s, so 512 MiB
        take 1 ms: 3 to 6 times as long. The clock is the same: cycles.)",
    .arms = {"copy"},
    .quick = {{}},
    .run = run,
};
