#include "core/host/testing/faults/fault.hpp"
#include "core/host/testing/faults/fault_kernels.hpp"
#include "core/host/testing/faults/pattern_copy.hpp"

namespace {

using namespace gpulift::testing_faults;

void copy(const PatternCopy& data, gpulift::StreamHandle stream) {
  if (is_faulty()) {
    copy_bytes(data.input(), data.output(), PatternCopy::kBytes, stream);
  } else {
    copy_vectors(data.input(), data.output(), PatternCopy::kBytes, 0, stream);
  }
}

void run(gpulift::Trial& trial) {
  const PatternCopy data(trial.device(), trial.seed());
  trial.cost(data.cost());
  trial.check(data.check());
  trial.compare({{.name = "copy", .make = [&] { return [&](gpulift::StreamHandle stream) { copy(data, stream); }; }}});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "Is it found when a copy of bytes loses its vector loads?",
    .expectation = R"(
        16 bytes a thread: 1 GiB at 4.2 TB/s, 256 us. One byte a thread: 2048 threads on each of 132 multiprocessors
        have 0.27 MB in flight, a thirteenth of the 3.8 MB that the rate needs, unless a thread ends before its store
        does: 3 to 13 times as long. The clock is the same: cycles.)",
    .arms = {"copy"},
    .quick = {{}},
    .run = run,
};
