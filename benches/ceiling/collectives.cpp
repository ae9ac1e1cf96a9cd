#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/cuda/device.hpp"
#include "core/cuda/error.hpp"
#include "core/harness/technique.hpp"
#include "kernels/pattern.hpp"
#include "workloads/nccl/communicator.hpp"
#include "workloads/nccl/transport.hpp"
#include "workloads/peers.hpp"

namespace {

using gpulift::check;
using gpulift::enable_peer_access;
using gpulift::OnGpu;
using gpulift::StreamHandle;

constexpr int kPoison = 0xFF;  // a float of such bytes is NaN, and equals nothing

/// Element i of a rank's input is integer i of this sequence, which repeats. Small integers, whose sum is exact in any
/// order; a prime number of them, so that a block that arrives at another's place is wrong.
using Integers = std::vector<float>;
constexpr std::size_t kPeriod = 1'048'573;

Integers integers_of(std::uint64_t seed, int rank) {
  Integers integers(kPeriod);
  for (std::size_t i = 0; i < kPeriod; ++i) {
    integers[i] = static_cast<float>(gpulift::random_bits(seed, static_cast<std::size_t>(rank) * kPeriod + i) % 16);
  }
  return integers;
}

Integers sums_of(std::uint64_t seed, int ranks) {
  Integers sums(kPeriod, 0.0F);
  for (int rank = 0; rank < ranks; ++rank) {
    const Integers integers = integers_of(seed, rank);
    std::transform(sums.begin(), sums.end(), integers.begin(), sums.begin(), std::plus<>());
  }
  return sums;
}

/// Elements that hold the integers from number `first` on.
struct Stretch {
  Integers integers;
  std::size_t first = 0;
  std::size_t count = 0;

  /// Calls `use` with the place of each unbroken run of integers, where it begins among them, and its length.
  void for_each_run(const std::function<void(std::size_t, const float*, std::size_t)>& use) const {
    for (std::size_t done = 0; done < count;) {
      const std::size_t begin = (first + done) % kPeriod;
      const std::size_t length = std::min(count - done, kPeriod - begin);
      use(done, integers.data() + begin, length);
      done += length;
    }
  }
  void write_to(float* device_data) const {
    for_each_run([&](std::size_t at, const float* from, std::size_t length) {
      check(cudaMemcpy(device_data + at, from, length * sizeof(float), cudaMemcpyHostToDevice));
    });
  }
  double wrong_elements(const float* device_data) const {
    Integers actual(std::min(count, kPeriod));
    double wrong = 0;
    for_each_run([&](std::size_t at, const float* expected, std::size_t length) {
      check(cudaMemcpy(actual.data(), device_data + at, length * sizeof(float), cudaMemcpyDeviceToHost));
      for (std::size_t i = 0; i < length; ++i) wrong += actual[i] == expected[i] ? 0 : 1;
    });
    return wrong;
  }
};

/// Where an arm's result arrives, and what it must be: stretches one after another.
class Output {
 public:
  Output(gpulift::Device& device, std::vector<Stretch> expected)
      : gpu_(device.index()), expected_(std::move(expected)), data_(device, count_of(expected_)) {}

  float* data() const { return data_.data(); }
  void poison() const {
    const OnGpu here(gpu_);
    check(cudaMemset(data_.data(), kPoison, data_.bytes()));
    check(cudaDeviceSynchronize());
  }
  double wrong_elements() const {
    double wrong = 0;
    std::size_t at = 0;
    for (const Stretch& stretch : expected_) {
      wrong += stretch.wrong_elements(data_.data() + at);
      at += stretch.count;
    }
    return wrong;
  }

 private:
  static std::size_t count_of(const std::vector<Stretch>& stretches) {
    return std::accumulate(stretches.begin(), stretches.end(), std::size_t{0},
                           [](std::size_t sum, const Stretch& stretch) { return sum + stretch.count; });
  }

  int gpu_;
  std::vector<Stretch> expected_;
  gpulift::DeviceBuffer<float> data_;
};

/// What the ranks of an arm begin with: each the integers of its own.
struct Start {
  std::uint64_t seed;
  gpulift::Group group;
  std::size_t count;  // elements of the larger of input and output: "size" in nccl-tests

  std::size_t share() const { return count / static_cast<std::size_t>(group.ranks); }
  /// Where this rank's share begins.
  std::size_t own() const { return share() * static_cast<std::size_t>(group.rank); }
};

/// What one rank sends, what it must get, and the call.
struct Exchange {
  std::size_t sent;
  std::vector<Stretch> received;
  std::function<void(const float* input, float* output, ncclComm_t, StreamHandle)> call;
};

Exchange all_reduce(const Start& start) {
  return {.sent = start.count,
          .received = {{sums_of(start.seed, start.group.ranks), 0, start.count}},
          .call = [count = start.count](const float* input, float* output, ncclComm_t ranks, StreamHandle stream) {
            check(ncclAllReduce(input, output, count, ncclFloat, ncclSum, ranks, stream));
          }};
}

Exchange all_gather(const Start& start) {
  std::vector<Stretch> received;
  for (int rank = 0; rank < start.group.ranks; ++rank) {
    received.push_back({integers_of(start.seed, rank), 0, start.share()});
  }
  return {.sent = start.share(),
          .received = std::move(received),
          .call = [share = start.share()](const float* input, float* output, ncclComm_t ranks, StreamHandle stream) {
            check(ncclAllGather(input, output, share, ncclFloat, ranks, stream));
          }};
}

Exchange reduce_scatter(const Start& start) {
  return {.sent = start.count,
          .received = {{sums_of(start.seed, start.group.ranks), start.own(), start.share()}},
          .call = [share = start.share()](const float* input, float* output, ncclComm_t ranks, StreamHandle stream) {
            check(ncclReduceScatter(input, output, share, ncclFloat, ncclSum, ranks, stream));
          }};
}

Exchange all_to_all(const Start& start) {
  std::vector<Stretch> received;
  for (int rank = 0; rank < start.group.ranks; ++rank) {
    received.push_back({integers_of(start.seed, rank), start.own(), start.share()});
  }
  // Sends and receives in one group, as frameworks do it: NCCL has a call of its own from 2.28 on alone.
  return {.sent = start.count,
          .received = std::move(received),
          .call = [share = start.share(), count = start.group.ranks](const float* input, float* output,
                                                                     ncclComm_t ranks, StreamHandle stream) {
            check(ncclGroupStart());
            for (int peer = 0; peer < count; ++peer) {
              const std::size_t at = share * static_cast<std::size_t>(peer);
              check(ncclSend(input + at, share, ncclFloat, peer, ranks, stream));
              check(ncclRecv(output + at, share, ncclFloat, peer, ranks, stream));
            }
            check(ncclGroupEnd());
          }};
}

/// Waits for copies from pageable memory, which may return before they have arrived, and for no stream of ours.
void write_input(const gpulift::DeviceBuffer<float>& input, std::uint64_t seed, int rank) {
  Stretch{integers_of(seed, rank), 0, input.size()}.write_to(input.data());
  check(cudaDeviceSynchronize());
}

/// One rank of a collective: its GPU's buffers, out of place, and its communicator.
class Rank {
 public:
  Rank(gpulift::Trial& trial, Exchange exchange)
      : ranks_(trial),
        input_(trial.device(), exchange.sent),
        output_(trial.device(), std::move(exchange.received)),
        call_(std::move(exchange.call)) {
    write_input(input_, trial.seed(), ranks_.group().rank);
  }

  void step(StreamHandle stream) const { call_(input_.data(), output_.data(), ranks_.get(), stream); }
  const Output& output() const { return output_; }

 private:
  gpulift::Communicator ranks_;
  gpulift::DeviceBuffer<float> input_;
  Output output_;
  std::function<void(const float*, float*, ncclComm_t, StreamHandle)> call_;
};

/// A copy from the first GPU to the second by one process: over the link between them where they have access to each
/// other's memory, else the driver stages it in the host's.
class PeerCopy {
 public:
  PeerCopy(gpulift::Trial& trial, std::size_t count, bool direct)
      : near_(trial.device().index()),
        far_(open(trial.gpus().at(1))),
        input_(trial.device(), count),
        output_(make_output(*far_, {integers_of(trial.seed(), 0), 0, count})) {
    write_input(input_, trial.seed(), 0);
    if (!direct) return;
    enable_peer_access(near_, far_->index());
    enable_peer_access(far_->index(), near_);
  }

  void step(StreamHandle stream) const {
    check(cudaMemcpyPeerAsync(output_.data(), far_->index(), input_.data(), near_, input_.bytes(), stream));
  }
  const Output& output() const { return output_; }

 private:
  // Both leave the first GPU the current one.
  static std::unique_ptr<gpulift::Device> open(int gpu) {
    const OnGpu here(gpu);
    return std::make_unique<gpulift::Device>(gpu);
  }
  static Output make_output(gpulift::Device& far, Stretch expected) {
    const OnGpu here(far.index());
    return {far, {std::move(expected)}};
  }

  int near_;
  std::unique_ptr<gpulift::Device> far_;
  gpulift::DeviceBuffer<float> input_;
  Output output_;
};

void run(gpulift::Trial& trial) {
  const auto bytes = static_cast<std::size_t>(trial.number("bytes"));
  const std::size_t count = bytes / sizeof(float);
  const auto ranks = static_cast<int>(trial.number("gpus"));
  const std::string link = trial.word("link");
  const bool nvlink = link == "nvlink";
  const bool fabric = link == "fabric";
  const std::string roof = nvlink ? "gpu_link" : fabric ? "fabric" : "gpu_link/host";
  std::map<std::string, std::string> environment;
  if (!fabric) environment["NCCL_P2P_DISABLE"] = nvlink ? "0" : "1";
  // A switch that sums (NVLS, of more than two GPUs) carries fewer bytes than nccl-tests counts, so that an all-reduce
  // may be faster than any link. Whether it may is the user's setting, and the record's context has it.
  const char* const nvls = std::getenv("NCCL_NVLS_ENABLE");
  const bool sums_in_switch = (nvlink || fabric) && ranks > 2 && (nvls == nullptr || std::string(nvls) != "0");
  trial.version("nccl", gpulift::nccl_version());

  std::weak_ptr<const Output> latest;  // of the arm that was made last
  trial.check({.meaning = "wrong elements on any rank, of sums and copies of small integers",
               .poison = [&](StreamHandle) { latest.lock()->poison(); },
               .error =
                   [&](StreamHandle stream) {
                     const auto output = latest.lock();
                     if (output == nullptr) return std::numeric_limits<double>::quiet_NaN();
                     check(cudaStreamSynchronize(stream));
                     return output->wrong_elements();
                   },
               .tolerance = 0});

  // Steps use the same buffers again and again, as nccl-tests does: what a GPU sends may stay in its cache where it
  // fits, but the link, which is the subject, carries it every time.
  const auto work_of = [&](const auto& arm) -> gpulift::Work {
    latest = std::shared_ptr<const Output>(arm, &arm->output());
    return [arm](StreamHandle stream) { arm->step(stream); };
  };
  // Bus bytes as nccl-tests defines them (doc/PERFORMANCE.md): what crosses the link each way, by a rank.
  const auto cost = [&](double share, const std::string& of_roof) {
    return gpulift::Cost{.bytes = share * static_cast<double>(bytes), .items = 1, .item = "call", .roof = of_roof};
  };
  std::unique_ptr<gpulift::TransportLog> transport;  // made with the arm, in its process
  const auto collective = [&](const std::string& name, double share, Exchange (*exchange)(const Start&)) {
    return gpulift::Arm{
        .name = name,
        .make =
            [&, exchange] {
              if (nvlink) gpulift::require_nvlink(trial.gpus());
              if (fabric && !transport) transport = std::make_unique<gpulift::TransportLog>();
              return work_of(std::make_shared<Rank>(trial, exchange({trial.seed(), trial.group(), count})));
            },
        .clock = gpulift::Clock::kUnheld,
        .cost = cost(share, sums_in_switch && name == "all_reduce" ? "" : roof),
        .worker = gpulift::Worker{.device = true, .environment = environment, .ranks = ranks},
        .metrics =
            [&](const gpulift::Step&, StreamHandle) {
              if (transport) trial.note("nccl_transport", transport->told());
              return gpulift::Metrics{};
            }};
  };
  const double others = (ranks - 1.0) / ranks;
  trial.compare({collective("all_reduce", 2 * others, all_reduce),  // every element goes out as a part and as a sum
                 collective("all_gather", others, all_gather), collective("reduce_scatter", others, reduce_scatter),
                 collective("all_to_all", others, all_to_all),
                 gpulift::Arm{.name = "peer_copy",
                              .make =
                                  [&] {
                                    if (nvlink) gpulift::require_nvlink(trial.gpus());
                                    return work_of(std::make_shared<PeerCopy>(trial, count, nvlink));
                                  },
                              .clock = gpulift::Clock::kUnheld,
                              .cost = cost(1, roof),
                              .worker = gpulift::Worker{.device = true},
                              .unavailable = fabric ? "no process has GPUs of two nodes" : ""}});
}

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

gpulift::Point case_of(std::int64_t gpus, const std::string& link, std::int64_t bytes) {
  return {{"gpus", gpus}, {"link", link}, {"bytes", bytes}};
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question =
        "How fast do GPUs exchange memory, by NCCL's collectives and by a plain copy between two, over NVLink and "
        "through the host?",
    .expectation = R"(
        Two H100 have 18 NVLinks of 25 GB/s each way: 450 GB/s. A copy engine reaches about 395 of them by public
        figures: 1 GiB in 2.7 ms. nccl-tests gives 330 GB/s of bus bandwidth for an all-reduce of 1 GiB between two
        H100, 3.3 ms, and about 270 for 64 MiB, 0.25 ms. An all-gather and a reduce-scatter do half of that with the
        same waits for the other GPU and stay 20 % below. By a switch each GPU has its whole bandwidth to every other:
        nccl-tests gives 355 GB/s for four and 361 for eight. 8 KiB is latency alone, 10 to 20 us for two and some 2 us
        more for each further one, and 1 MiB takes 22. Through the host each byte goes up one PCIe link of 63 GB/s and
        down the other, by way of memory: about 26 GB/s, 41 ms for 1 GiB.)",
    .predict =
        {{.arm = "all_reduce", .cases = case_of(2, "nvlink", 8192), .on = "h100", .step_time_s = {{10e-6, 20e-6}}},
         {.arm = "all_reduce", .cases = case_of(2, "nvlink", kMiB), .on = "h100", .step_time_s = {{19.8e-6, 24.2e-6}}},
         {.arm = "all_reduce",
          .cases = case_of(2, "nvlink", 64 * kMiB),
          .on = "h100",
          .step_time_s = {{225e-6, 275e-6}}},
         {.arm = "all_reduce",
          .cases = case_of(2, "nvlink", 1024 * kMiB),
          .on = "h100",
          .step_time_s = {{2.97e-3, 3.63e-3}}},
         {.arm = "all_reduce",
          .cases = case_of(4, "nvlink", 1024 * kMiB),
          .on = "h100",
          .step_time_s = {{4.08e-3, 4.99e-3}}},
         {.arm = "all_reduce",
          .cases = case_of(8, "nvlink", 1024 * kMiB),
          .on = "h100",
          .step_time_s = {{4.68e-3, 5.73e-3}}},
         {.arm = "all_reduce",
          .cases = case_of(2, "host", 1024 * kMiB),
          .on = "h100",
          .step_time_s = {{36.9e-3, 45.1e-3}}},
         {.arm = "all_gather",
          .cases = case_of(2, "nvlink", 1024 * kMiB),
          .on = "h100",
          .step_time_s = {{1.83e-3, 2.24e-3}}},
         {.arm = "reduce_scatter",
          .cases = case_of(2, "nvlink", 1024 * kMiB),
          .on = "h100",
          .step_time_s = {{1.83e-3, 2.24e-3}}},
         {.arm = "peer_copy",
          .cases = case_of(2, "nvlink", 1024 * kMiB),
          .on = "h100",
          .step_time_s = {{2.43e-3, 2.97e-3}}},
         {.arm = "peer_copy",
          .cases = case_of(2, "host", 1024 * kMiB),
          .on = "h100",
          .step_time_s = {{36.9e-3, 45.1e-3}}}},
    .found = R"(
        Two network namespaces of one host with two H200, by NCCL's sockets over a pair of virtual interfaces, one
        launch: 2.4 GB/s of bus bandwidth from 64 MiB on, 46 us for 8 KiB. It shows how a fabric is measured, and is none.)",
    .gpus = 2,
    .ceiling = true,
    .spans_hosts = true,
    .arms = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "peer_copy"},
    .l2 = gpulift::Cache::kBySize,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"gpus", {2, 4, 8}}, {"link", {"nvlink", "host"}}, {"bytes", {8192, kMiB, 64 * kMiB, 1024 * kMiB}}},
    .quick = {{{"gpus", 2}, {"link", "nvlink"}, {"bytes", 64 * kMiB}}},
    .run = run,
};
