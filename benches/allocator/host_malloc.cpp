#include <omp.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>

#include "core/harness/host_limits.hpp"
#include "core/harness/technique.hpp"
#include "workloads/host/allocator_in_use.hpp"
#include "workloads/host/collate.hpp"

namespace {

using gpulift::CollateLoad;

/// One arm, in a process of its own that starts with `preload`. glibc's has none, and is a process of its own too.
struct Allocator {
  std::string arm;
  std::string name;  // as allocator_in_use() calls it
  std::string preload;
  std::string remedy;
};

void run(gpulift::Trial& trial) {
  const bool one = trial.word("threads") == "one";
  const int cores = gpulift::allowed_cores(omp_get_num_procs());
  const int threads = one ? 1 : std::max(2, cores);  // at least one that allocates and one that frees
  const auto mix = gpulift::collate_mix(trial.word("blocks"));
  trial.note("threads", std::to_string(threads));
  {
    const CollateLoad load(mix, 1, trial.seed());
    const double producers = std::max(1, threads / 2);  // each makes as many blocks as one alone, of other sizes
    trial.note("bytes_of_one_producer", std::to_string(load.bytes()));
    trial.cost({.items = producers * static_cast<double>(load.blocks()), .roof = {}});  // one malloc, one free each
  }

  std::weak_ptr<CollateLoad> latest;  // the arm that is checked: it is alone then
  trial.check({.meaning = "exact bytes: every block still holds what its producer wrote when it is freed",
               .poison = [&](auto) { latest.lock()->poison(); },
               .error = [&](auto) { return static_cast<double>(latest.lock()->wrong_bytes()); }});

  const auto arm = [&](const Allocator& allocator) {
    return gpulift::Arm{
        .name = allocator.arm,
        .make = [&, name = allocator.name]() -> gpulift::Step {
          const auto found = gpulift::allocator_in_use();
          if (found != name) throw std::runtime_error("malloc() is " + found + "'s here, not " + name + "'s");
          auto load = std::make_shared<CollateLoad>(mix, threads, trial.seed());
          latest = load;
          return [load](auto) { load->run(); };
        },
        .clock = gpulift::Clock::kHost,
        .worker = gpulift::Worker{.preload = allocator.preload, .remedy = allocator.remedy, .environment = {}}};
  };
  trial.compare({arm({"glibc", "libc", "", ""}),
                 arm({"jemalloc", "jemalloc", "libjemalloc.so.2", "install the package libjemalloc2"}),
                 arm({"tcmalloc", "tcmalloc", "libtcmalloc_minimal.so.4",
                      "install the package libtcmalloc-minimal4 (libtcmalloc-minimal4t64 on Ubuntu 24.04)"}),
                 arm({"mimalloc", "mimalloc", "libmimalloc.so.2", "install the package libmimalloc2.0"})});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What does another malloc save a data loader whose batches are freed by another thread?",
    .expectation = R"(
        No controlled figure is published; PyTorch brings mimalloc on Windows for the cost of malloc there. A pair of
        malloc and free costs 20 to 100 ns; a block of 350 bytes is written and read in about 50 ns, so for metadata the
        allocator can be half of the time and a factor of up to 2 is possible, most where glibc's arenas are locked from
        another thread. An image of 588 KiB takes about 100 us to write and read and has 147 pages: an allocator that
        gives memory back to the system pays 147 x 0.1 to 0.25 us = 15 to 40 us to get it again, which bounds the effect
        at 1.4 either way. Collate-like batches are nearly all image bytes: the same bound.)",
    .predict = {{.arm = "jemalloc", .cases = {{"blocks", "metadata"}}, .speedup = {{1, 2}}},
                {.arm = "jemalloc", .cases = {{"blocks", "images"}}, .speedup = {{0.714, 1.4}}},
                {.arm = "jemalloc", .cases = {{"blocks", "collate"}}, .speedup = {{0.714, 1.4}}},
                {.arm = "tcmalloc", .cases = {{"blocks", "metadata"}}, .speedup = {{1, 2}}},
                {.arm = "tcmalloc", .cases = {{"blocks", "images"}}, .speedup = {{0.714, 1.4}}},
                {.arm = "tcmalloc", .cases = {{"blocks", "collate"}}, .speedup = {{0.714, 1.4}}},
                {.arm = "mimalloc", .cases = {{"blocks", "metadata"}}, .speedup = {{1, 2}}},
                {.arm = "mimalloc", .cases = {{"blocks", "images"}}, .speedup = {{0.714, 1.4}}},
                {.arm = "mimalloc", .cases = {{"blocks", "collate"}}, .speedup = {{0.714, 1.4}}}},
    .found = R"(
        On all 16 cores of an H200's host metadata gains 3.0 by jemalloc and 3.7 by mimalloc: glibc takes 0.5 us for a
        block there, six times what it takes on one thread, so that malloc is far more than half of the time. That it
        waits for the locks of its arenas is inferred, not traced.)",
    .claims = {"jemalloc-faster", "tcmalloc-faster", "jemalloc-less-memory", "tcmalloc-less-memory"},
    .gpus = 0,
    .ceiling = false,
    .arms = {"glibc", "jemalloc", "tcmalloc", "mimalloc"},
    .l2 = gpulift::Cache::kNone,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"threads", {"one", "all_cores"}}, {"blocks", {"collate", "metadata", "tokens", "images"}}},
    .quick = {{{"blocks", "collate"}}},
    .run = run,
};
