#include <omp.h>

#include <memory>
#include <string>

#include "core/harness/host_cache.hpp"
#include "core/harness/host_limits.hpp"
#include "core/harness/technique.hpp"
#include "workloads/host/stream_ops.hpp"

namespace {

using gpulift::HostStream;
using gpulift::StreamOp;

constexpr std::size_t kCacheMultiple = 4;
constexpr std::size_t kArms = 4;
constexpr std::size_t kWholeLines = 2 * 3 * 64;

/// No more OpenMP threads than cores that may be kept busy, as long as it lives: other cases share this process.
class AllowedThreads {
 public:
  AllowedThreads() { omp_set_num_threads(gpulift::allowed_cores(before_)); }
  ~AllowedThreads() { omp_set_num_threads(before_); }
  AllowedThreads(const AllowedThreads&) = delete;
  AllowedThreads& operator=(const AllowedThreads&) = delete;

 private:
  int before_ = omp_get_max_threads();
};

void run(gpulift::Trial& trial) {
  const auto cache_bytes = gpulift::last_level_cache_bytes();
  if (!cache_bytes) trial.skip("the system does not say how large its last-level cache is");
  // Of each arm, shared out to its one, two or three arrays of whole cache lines.
  const std::size_t footprint_bytes = kCacheMultiple * *cache_bytes / kWholeLines * kWholeLines;
  if (kArms * footprint_bytes > gpulift::allowed_memory_bytes() / 2) {
    trial.skip("not enough memory: four arms of 4 x last-level cache need more than half of it");
  }
  const AllowedThreads threads;
  trial.note("footprint_bytes", std::to_string(footprint_bytes));
  trial.note("threads", std::to_string(omp_get_max_threads()));
  trial.note("byte_counting", std::string("as STREAM: 8 bytes per element read and per element written; stores ") +
                                  (gpulift::stores_bypass_caches() ? "bypass the caches" : "go through the caches"));

  std::weak_ptr<HostStream> latest;  // the arm that is checked: it is alone then
  trial.check({.meaning = "exact sum and exact elements",
               .poison = [&](auto) { latest.lock()->poison(); },
               .error = [&](auto) { return latest.lock()->error(); }});

  const auto arm = [&](const char* name, StreamOp op) {
    const auto count = static_cast<double>(footprint_bytes);  // each byte of the footprint moves once in a step
    return gpulift::Arm{.name = name,
                        .make = [&, op]() -> gpulift::Step {
                          auto stream = std::make_shared<HostStream>(op, footprint_bytes, trial.seed());
                          latest = stream;
                          return [stream](auto) { stream->run(); };
                        },
                        .clock = gpulift::Clock::kHost,
                        .cost = gpulift::Cost{.bytes = count, .roof = "host_memory"}};
  };
  trial.compare({arm("read", StreamOp::kRead), arm("write", StreamOp::kWrite), arm("copy", StreamOp::kCopy),
                 arm("triad", StreamOp::kTriad)});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "How fast can all cores together read and write this machine's memory?",
    .expectation = R"(
        The lower of two limits: channels x 8 bytes x transfers per second (12 channels of DDR5-4800: 461 GB/s; 2 of
        DDR4-3200: 51 GB/s), of which 75 to 90 % can be reached, and cores x outstanding lines x 64 bytes / latency (32
        lines at 100 ns: 20 GB/s per core), which bounds a machine of few cores. The four loops agree within 30 %, since
        stores past the caches save the read before the write; with plain stores copy would be at 2/3 and triad at 3/4
        of this figure.)",
    .predict = {{.arm = "write", .speedup = {{0.7, 1.3}}},
                {.arm = "copy", .speedup = {{0.7, 1.3}}},
                {.arm = "triad", .speedup = {{0.7, 1.3}}}},
    .found = R"(
        On an H200's host 16 cores write some 180 GB/s past the caches and read 95: 1.8; on an H100's 1.7, copies and
        triads 1.5. That the lines which a core may have outstanding bound reads to 6 GB/s each, and not such stores, is
        inferred, not traced.)",
    .gpus = 0,
    .ceiling = true,
    .arms = {"read", "write", "copy", "triad"},
    .l2 = gpulift::Cache::kNone,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"size", {"4xLLC"}}},
    .quick = {{{"size", "4xLLC"}}},
    .run = run,
};
