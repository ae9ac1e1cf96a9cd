#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/cuda/device.hpp"
#include "core/harness/technique.hpp"
#include "kernels/fill.hpp"
#include "kernels/verify.hpp"

namespace {

using gpulift::Arm;
using gpulift::check;
using gpulift::Device;
using gpulift::StreamHandle;
using gpulift::Work;

constexpr int kPoison = 0xFF;
constexpr std::size_t kTrafficBytes = std::size_t{512} << 20;  // at least
constexpr int kSweeps = 10;                                    // kernels of a step: the first finds a cold cache
constexpr unsigned kThreads = 256;
constexpr unsigned kWarp = 32;
constexpr unsigned kBlocksPerMultiprocessor = 8;

/// How the traffic is loaded.
enum class Traffic { kPlain, kEvictFirst };

__device__ std::uint32_t sum_words(uint4 value) { return value.x + value.y + value.z + value.w; }

/// For every 16 bytes of the traffic, read once, 16 bytes of the working set, over and over. Writes a sum a warp.
template <Traffic kTraffic>
__global__ __launch_bounds__(kThreads) void read_both(const uint4* set, unsigned set_count, const uint4* traffic,
                                                      unsigned traffic_count, std::uint32_t* sums) {
  const unsigned first = blockIdx.x * kThreads + threadIdx.x;
  const unsigned stride = gridDim.x * kThreads;
  const unsigned step = stride % set_count;
  unsigned in_set = first % set_count;
  std::uint32_t sum = 0;
  for (unsigned i = first; i < traffic_count; i += stride) {
    sum += sum_words(kTraffic == Traffic::kPlain ? traffic[i] : __ldcs(traffic + i)) + sum_words(set[in_set]);
    in_set += step;  // less than twice the set: no division for each load
    if (in_set >= set_count) in_set -= set_count;
  }
  for (unsigned distance = kWarp / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, distance);
  if (threadIdx.x % kWarp == 0) sums[first / kWarp] = sum;
}

/// A working set, which fits into the cache or not, and traffic that is a whole number of times as large.
class Reads {
 public:
  Reads(Device& device, std::size_t set_bytes, std::uint64_t seed)
      : blocks_(device.multiprocessors() * kBlocksPerMultiprocessor),
        repeats_((kTrafficBytes + set_bytes - 1) / set_bytes),
        set_(device, set_bytes / sizeof(uint4)),
        traffic_(device, repeats_ * set_.size()),
        sums_(device, blocks_ * kThreads / kWarp) {
    gpulift::fill_pattern(set_.data(), set_.bytes(), seed, nullptr);
    gpulift::fill_pattern(traffic_.data(), traffic_.bytes(), seed + 1, nullptr);
    check(cudaDeviceSynchronize());
  }

  void enqueue(Traffic traffic, cudaLaunchAttribute* window, StreamHandle stream) const {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(blocks_);
    config.blockDim = dim3(kThreads);
    config.stream = stream;
    config.attrs = window;
    config.numAttrs = window != nullptr ? 1 : 0;
    const auto kernel = traffic == Traffic::kPlain ? read_both<Traffic::kPlain> : read_both<Traffic::kEvictFirst>;
    for (int sweep = 0; sweep < kSweeps; ++sweep) {
      check(cudaLaunchKernelEx(&config, kernel, static_cast<const uint4*>(set_.data()),
                               static_cast<unsigned>(set_.size()), static_cast<const uint4*>(traffic_.data()),
                               static_cast<unsigned>(traffic_.size()), sums_.data()));
    }
  }

  /// So many bytes of the working set stay, and the others pass through.
  cudaLaunchAttribute window(std::size_t kept_bytes, std::size_t largest_bytes) const {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeAccessPolicyWindow;
    cudaAccessPolicyWindow& policy = attribute.val.accessPolicyWindow;
    policy.base_ptr = set_.data();
    policy.num_bytes = std::min(set_.bytes(), largest_bytes);
    policy.hitRatio = std::min(1.0F, static_cast<float>(kept_bytes) / static_cast<float>(policy.num_bytes));
    policy.hitProp = cudaAccessPropertyPersisting;
    policy.missProp = cudaAccessPropertyStreaming;
    return attribute;
  }

  double bytes() const { return 2.0 * kSweeps * static_cast<double>(traffic_.bytes()); }
  void poison(StreamHandle stream) const { check(cudaMemsetAsync(sums_.data(), kPoison, sums_.bytes(), stream)); }
  double error(const gpulift::Verifier& verifier, StreamHandle stream) const {
    const std::uint32_t of_set = verifier.sum_of_words(set_.data(), set_.bytes() / sizeof(std::uint32_t), stream);
    const std::uint32_t of_traffic =
        verifier.sum_of_words(traffic_.data(), traffic_.bytes() / sizeof(std::uint32_t), stream);
    const auto expected = static_cast<std::uint32_t>(of_traffic + repeats_ * of_set);
    return std::abs(static_cast<double>(verifier.sum_of_words(sums_.data(), sums_.size(), stream)) - expected);
  }

 private:
  unsigned blocks_;
  std::size_t repeats_;
  gpulift::DeviceBuffer<uint4> set_;
  gpulift::DeviceBuffer<uint4> traffic_;
  gpulift::DeviceBuffer<std::uint32_t> sums_;
};

std::size_t attribute_of(const Device& device, cudaDeviceAttr name) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, name, device.index()));
  return static_cast<std::size_t>(value);
}

void run(gpulift::Trial& trial) {
  Device& device = trial.device();
  const Reads reads(device, static_cast<std::size_t>(trial.number("working_set_mib")) << 20, trial.seed());
  const gpulift::Verifier verifier(device);
  const std::size_t set_aside_bytes = attribute_of(device, cudaDevAttrMaxPersistingL2CacheSize);
  std::size_t usual_bytes = 0;  // the driver's own choice, which is not 0 everywhere
  check(cudaDeviceGetLimit(&usual_bytes, cudaLimitPersistingL2CacheSize));
  const std::size_t largest_bytes = attribute_of(device, cudaDevAttrMaxAccessPolicyWindowSize);
  trial.note("set_aside_bytes", std::to_string(set_aside_bytes));

  trial.cost({.bytes = reads.bytes(), .roof = {}});  // no roof: some of it comes from the cache
  trial.check({.meaning = "exact sum of all words",
               .poison = [&](StreamHandle stream) { reads.poison(stream); },
               .error = [&](StreamHandle stream) { return reads.error(verifier, stream); },
               .tolerance = 0});

  // What is set aside changes ahead of every arm's windows, which may empty the cache: what that costs, and windows
  // without a lead-in, would else be those of the persisting arms alone.
  const auto behind_change = [&](const gpulift::Step& step, std::size_t limit_bytes) {
    Work work(step);
    if (set_aside_bytes > 0) {
      work.before([set_aside_bytes, limit_bytes] {
        for (const std::size_t bytes : {set_aside_bytes, limit_bytes}) {
          check(cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, bytes));
        }
      });
      work.rest([usual_bytes] {
        check(cudaCtxResetPersistingL2Cache());
        check(cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, usual_bytes));
      });
    }
    return work;
  };
  const auto without_window = [&](Traffic traffic, std::size_t limit_bytes) {
    return [&, traffic, limit_bytes] {
      return behind_change([&, traffic](StreamHandle stream) { reads.enqueue(traffic, nullptr, stream); }, limit_bytes);
    };
  };
  const auto persisting = [&](std::size_t kept_bytes) {
    return [&, kept_bytes] {
      return behind_change([&, window = reads.window(kept_bytes, largest_bytes)](
                               StreamHandle stream) mutable { reads.enqueue(Traffic::kPlain, &window, stream); },
                           set_aside_bytes);
    };
  };
  const std::string unavailable = set_aside_bytes == 0 ? "this device sets no part of its L2 cache aside, as those of "
                                                         "compute capability 8.0 and later do"
                                                       : "";
  trial.compare({Arm{.name = "default", .make = without_window(Traffic::kPlain, usual_bytes)},
                 Arm{.name = "persisting", .make = persisting(set_aside_bytes), .unavailable = unavailable},
                 Arm{.name = "persisting_half", .make = persisting(set_aside_bytes / 2), .unavailable = unavailable},
                 Arm{.name = "evict_first", .make = without_window(Traffic::kEvictFirst, usual_bytes)},
                 Arm{.name = "set_aside_alone",
                     .make = without_window(Traffic::kPlain, set_aside_bytes),
                     .unavailable = unavailable}});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What is it worth to keep a working set in the L2 cache while other data stream through?",
    .expectation = R"(
        An H100 has 50 MiB of L2 and sets up to 31 MiB of it aside. As many bytes are read of a stream of 512 MiB as of the
        working set, over and over: a line comes back after twice the set's size. 8 MiB: 16 MiB lie between, and it
        stays by itself: 1.0. 24 MiB: 48 MiB lie between, more than a cache of two halves that hold some lines twice
        keeps, so by default all comes from memory, 1.07 GB at 3.0 TB/s, 0.36 ms; kept, half of it comes from the L2:
        0.2 ms, 1.7 times. 48 MiB: 65 % of it are kept: 1.3. 120 MiB: 26 %, 1.15. Loads of the stream that are to be
        evicted first keep as much without setting anything aside at 24 MiB, 1.7, but cannot choose which part of 48 and
        120 MiB stays: 1.1 and 1.0. Where both halves of the cache hold a line, only half of what is set aside can stay,
        and to ask for more makes it thrash: half the ratio would then be the better one, 1.2 at 24, 1.15 at 48, 1.07 at
        120 MiB. What is set aside and not asked for serves all other data, so that the control set_aside_alone has 1.0.
        An H200 has as much L2 and sets 37.5 MiB of it aside. Its records of 2026-11-26 have 0.90 of persisting at 24
        MiB, with windows that began otherwise than those of the default: 0.117 ms of 1.43 at 8 MiB, where nothing can
        be gained, and as much added to the default leaves 0.95 at 24 and 1.0 at 48 and 120 MiB, so that no line seems
        to stay; evict_first has 1.4 at 24, 1.15 at 48 and 1.0 at 120. What stays shows in the L2's hits, half of all
        sectors where all of a set does: --counters of ./gpulift show has them.)",
    .predict =
        {{.arm = "persisting", .cases = {{"working_set_mib", 8}}, .on = "h100", .speedup = {{0.95, 1.05}}},
         {.arm = "persisting", .cases = {{"working_set_mib", 24}}, .on = "h100", .speedup = {{1.53, 1.87}}},
         {.arm = "persisting", .cases = {{"working_set_mib", 48}}, .on = "h100", .speedup = {{1.17, 1.43}}},
         {.arm = "persisting", .cases = {{"working_set_mib", 120}}, .on = "h100", .speedup = {{1.03, 1.26}}},
         {.arm = "persisting_half", .cases = {{"working_set_mib", 24}}, .on = "h100", .speedup = {{1.08, 1.32}}},
         {.arm = "persisting_half", .cases = {{"working_set_mib", 48}}, .on = "h100", .speedup = {{1.03, 1.26}}},
         {.arm = "persisting_half", .cases = {{"working_set_mib", 120}}, .on = "h100", .speedup = {{0.963, 1.18}}},
         {.arm = "evict_first", .cases = {{"working_set_mib", 24}}, .on = "h100", .speedup = {{1.53, 1.87}}},
         {.arm = "evict_first", .cases = {{"working_set_mib", 48}}, .on = "h100", .speedup = {{0.99, 1.21}}},
         {.arm = "evict_first", .cases = {{"working_set_mib", 120}}, .on = "h100", .speedup = {{0.95, 1.05}}},
         {.arm = "set_aside_alone", .on = "nvidia-h", .speedup = {{0.97, 1.03}}},
         {.arm = "persisting", .cases = {{"working_set_mib", 8}}, .on = "h200", .speedup = {{0.95, 1.05}}},
         {.arm = "persisting", .cases = {{"working_set_mib", 24}}, .on = "h200", .speedup = {{0.9, 1}}},
         {.arm = "persisting", .cases = {{"working_set_mib", 48}}, .on = "h200", .speedup = {{0.95, 1.05}}},
         {.arm = "persisting", .cases = {{"working_set_mib", 120}}, .on = "h200", .speedup = {{0.95, 1.05}}},
         {.arm = "evict_first", .cases = {{"working_set_mib", 24}}, .on = "h200", .speedup = {{1.3, 1.5}}},
         {.arm = "evict_first", .cases = {{"working_set_mib", 48}}, .on = "h200", .speedup = {{1.07, 1.23}}},
         {.arm = "evict_first", .cases = {{"working_set_mib", 120}}, .on = "h200", .speedup = {{0.95, 1.05}}}},
    .found = R"(
        An H200, four launches in two runs: it has 60 MiB of L2, not as much as an H100. set_aside_alone has 0.90, 0.89,
        0.92 and 0.89 at 8, 24, 48 and 120 MiB, not 1.0; persisting is 1 to 3 % faster than that, persisting_half
        between 1 % slower and 2 % faster: so setting aside costs and keeping gains nothing that pays for it. The
        default takes what it took before its windows, too, began behind a change of the set-aside (1.445 and 1.434 ms
        at 8 MiB): the 0.12 ms are no cost of the lead-in, as was expected, but of setting aside. CUDA's guide says that
        normal accesses use the part that persisting ones leave unused. That much is so: at 8 MiB 16 MiB lie between two
        reads of a line, which 22.5 MiB in two halves that hold lines twice would not keep, and the set's 5.4 GB from
        memory would be 1.2 ms more, not 0.14. The loss is a share of the time, not of what hits: 0.3 ms at 120 MiB,
        where no line comes back before 240 MiB others. So reads from memory are slower beside a set-aside; why is not
        known, nor whether the driver honours a window at all: the counters of the L2 were not read. evict_first has
        1.44, 1.17 and 1.0 as expected at 24, 48 and 120 MiB, and 1.10 at 8, as if the stream displaced some even of a
        set that fits.)",
    .arms = {"default", "persisting", "persisting_half", "evict_first", "set_aside_alone"},
    .controls = {"set_aside_alone"},
    .l2 = gpulift::Cache::kCold,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"working_set_mib", {8, 24, 48, 120}}},
    .quick = {{{"working_set_mib", 24}}},
    .run = run,
};
