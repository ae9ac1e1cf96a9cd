#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <sstream>
#include <tuple>
#include <vector>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/cuda/device.hpp"
#include "core/cuda/handles.hpp"
#include "core/harness/technique.hpp"
#include "kernels/fill.hpp"
#include "kernels/verify.hpp"
#include "workloads/peers.hpp"

namespace {

using gpulift::check;
using gpulift::OnGpu;
using gpulift::StreamHandle;

constexpr int kPoison = 0xFF;
constexpr std::size_t kChunks = 16;  // that a copy through the host is cut into, so that its two halves overlap
constexpr int kTimedCopies = 8;      // of each pair, in the search for the slowest

/// A GPU with a stream, what it sends and where it receives.
class End {
 public:
  End(int gpu, std::size_t bytes, std::uint64_t seed) {
    const OnGpu here(gpu);
    device_ = std::make_unique<gpulift::Device>(gpu);
    sent_ = std::make_unique<gpulift::DeviceBuffer<std::byte>>(*device_, bytes);
    received_ = std::make_unique<gpulift::DeviceBuffer<std::byte>>(*device_, bytes);
    verifier_ = std::make_unique<gpulift::Verifier>(*device_);
    stream_ = gpulift::make_stream();
    reached_ = gpulift::make_ordering_event();
    gpulift::fill_pattern(sent_->data(), bytes, seed, stream_.get());
    check(cudaStreamSynchronize(stream_.get()));
  }

  int gpu() const { return device_->index(); }
  std::byte* sent() const { return sent_->data(); }
  std::byte* received() const { return received_->data(); }
  std::size_t bytes() const { return sent_->bytes(); }
  cudaStream_t stream() const { return stream_.get(); }
  cudaEvent_t reached() const { return reached_.get(); }

  void poison() const {
    const OnGpu here(gpu());
    check(cudaMemset(received(), kPoison, bytes()));
    check(cudaDeviceSynchronize());
  }
  /// Of what arrived, against what the other end's seed sends.
  double wrong_bytes(std::uint64_t seed) const {
    const OnGpu here(gpu());
    return verifier_->wrong_bytes(received(), bytes(), seed, stream_.get());
  }

 private:
  std::unique_ptr<gpulift::Device> device_;
  std::unique_ptr<gpulift::DeviceBuffer<std::byte>> sent_;
  std::unique_ptr<gpulift::DeviceBuffer<std::byte>> received_;
  std::unique_ptr<gpulift::Verifier> verifier_;
  gpulift::UniqueStream stream_;
  gpulift::UniqueEvent reached_;
};

/// Two GPUs; the first has the stream of the steps.
class Pair {
 public:
  Pair(int near, int far, std::size_t bytes, std::uint64_t seed)
      : near_(near, bytes, seed), far_(far, bytes, seed + 1), seed_(seed) {
    gpulift::enable_peer_access(near, far);
    gpulift::enable_peer_access(far, near);
  }

  void write(StreamHandle stream) const { copy(near_, far_, stream); }
  void read(StreamHandle stream) const { copy(far_, near_, stream); }
  /// Each GPU writes to the other.
  void both_ways(StreamHandle stream) const {
    fork(stream);
    write(stream);
    copy(far_, near_, far_.stream());
    join(stream);
  }
  /// Up one host link in pieces and down the other, each as soon as it is there.
  void through_host(StreamHandle stream, const gpulift::PinnedBuffer<std::byte>& staging) const {
    const std::size_t piece = near_.bytes() / kChunks;
    for (std::size_t at = 0; at < near_.bytes(); at += piece) {
      check(cudaMemcpyAsync(staging.data() + at, near_.sent() + at, piece, cudaMemcpyDeviceToHost, stream));
      fork(stream);
      check(cudaMemcpyAsync(far_.received() + at, staging.data() + at, piece, cudaMemcpyHostToDevice, far_.stream()));
    }
    join(stream);
  }

  void poison() const {
    near_.poison();
    far_.poison();
  }
  double wrong_at_far() const { return far_.wrong_bytes(seed_); }
  double wrong_at_near() const { return near_.wrong_bytes(seed_ + 1); }

  /// Bytes per second of a write, with nothing beside it.
  double write_rate() const {
    const gpulift::UniqueEvent begin = gpulift::make_timing_event();
    const gpulift::UniqueEvent end = gpulift::make_timing_event();
    write(near_.stream());
    check(cudaEventRecord(begin.get(), near_.stream()));
    for (int copy = 0; copy < kTimedCopies; ++copy) write(near_.stream());
    check(cudaEventRecord(end.get(), near_.stream()));
    check(cudaEventSynchronize(end.get()));
    float time_ms = 0;
    check(cudaEventElapsedTime(&time_ms, begin.get(), end.get()));
    return 1e3 * kTimedCopies * static_cast<double>(near_.bytes()) / time_ms;
  }

 private:
  static void copy(const End& from, const End& to, StreamHandle stream) {
    check(cudaMemcpyPeerAsync(to.received(), to.gpu(), from.sent(), from.gpu(), from.bytes(), stream));
  }
  /// What the far end does next waits for the stream.
  void fork(StreamHandle stream) const {
    check(cudaEventRecord(near_.reached(), stream));
    check(cudaStreamWaitEvent(far_.stream(), near_.reached()));
  }
  /// What the stream does next waits for the far end.
  void join(StreamHandle stream) const {
    check(cudaEventRecord(far_.reached(), far_.stream()));
    check(cudaStreamWaitEvent(stream, far_.reached()));
  }

  End near_;
  End far_;
  std::uint64_t seed_;
};

/// Notes how fast each GPU writes to each other, the slowest first; gives the one to which the first GPU is slowest.
int slowest_partner(gpulift::Trial& trial, std::size_t bytes) {
  std::vector<std::tuple<double, int, int>> pairs;
  for (const int near : trial.gpus()) {
    const OnGpu here(near);
    for (const int far : trial.gpus()) {
      if (near != far) pairs.emplace_back(Pair(near, far, bytes, trial.seed()).write_rate(), near, far);
    }
  }
  std::sort(pairs.begin(), pairs.end());
  std::ostringstream noted;
  for (const auto& [rate, near, far] : pairs) {
    noted << near << " to " << far << ": " << std::lround(rate / 1e9) << " GB/s; ";
  }
  trial.note("pairs", noted.str());
  const auto of_first = std::find_if(pairs.begin(), pairs.end(), [first = trial.device().index()](const auto& pair) {
    return std::get<1>(pair) == first;
  });
  return std::get<2>(*of_first);
}

/// What an arm copies, and where it arrives.
struct Arrival {
  bool near = false;
  bool far = false;
};

/// A pair with what an arm of it needs besides.
struct Copying {
  Copying(gpulift::Trial& trial, std::size_t bytes, Arrival arrival)
      : pair(trial.device().index(), slowest_partner(trial, bytes), bytes, trial.seed()), arrives(arrival) {}

  double wrong_bytes() const {
    return (arrives.near ? pair.wrong_at_near() : 0) + (arrives.far ? pair.wrong_at_far() : 0);
  }

  Pair pair;
  Arrival arrives;
};

void run(gpulift::Trial& trial) {
  const auto bytes = static_cast<std::size_t>(trial.number("bytes"));
  std::weak_ptr<const Copying> latest;  // of the arm that was made last
  trial.check({.meaning = "exact bytes",
               .poison = [&](StreamHandle) { latest.lock()->pair.poison(); },
               .error =
                   [&](StreamHandle stream) {
                     const auto copying = latest.lock();
                     if (copying == nullptr) return std::numeric_limits<double>::quiet_NaN();
                     check(cudaStreamSynchronize(stream));
                     return copying->wrong_bytes();
                   },
               .tolerance = 0});

  // One process drives all GPUs: a worker, which alone has them.
  const auto arm = [&](const char* name, Arrival arrival, const char* roof, const auto& step_of) {
    return gpulift::Arm{.name = name,
                        .make = [&trial, &latest, bytes, arrival, step_of]() -> gpulift::Work {
                          gpulift::require_nvlink(trial.gpus());
                          const auto copying = std::make_shared<const Copying>(trial, bytes, arrival);
                          latest = copying;
                          return step_of(copying);
                        },
                        .clock = gpulift::Clock::kUnheld,
                        // What a GPU sends is counted: both ways, each sends as much.
                        .cost = gpulift::Cost{.bytes = static_cast<double>(bytes), .roof = roof},
                        .worker = gpulift::Worker{.device = true}};
  };
  using Shared = std::shared_ptr<const Copying>;
  const auto write = [](const Shared& copying) {
    return [copying](StreamHandle stream) { copying->pair.write(stream); };
  };
  const auto read = [](const Shared& copying) {
    return [copying](StreamHandle stream) { copying->pair.read(stream); };
  };
  const auto both_ways = [](const Shared& copying) {
    return [copying](StreamHandle stream) { copying->pair.both_ways(stream); };
  };
  const auto through_host = [&trial, bytes](const Shared& copying) {
    const auto staging = std::make_shared<const gpulift::PinnedBuffer<std::byte>>(trial.device(), bytes);
    return [copying, staging](StreamHandle stream) { copying->pair.through_host(stream, *staging); };
  };
  trial.compare({arm("write", {.far = true}, "gpu_link", write), arm("read", {.near = true}, "gpu_link", read),
                 arm("both_ways", {.near = true, .far = true}, "gpu_link", both_ways),
                 arm("through_host", {.far = true}, "gpu_link/host", through_host)});
}

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

}  // namespace

const gpulift::Technique gpulift::technique{
    .question =
        "How fast do copies go from one GPU to another over NVLink, in either direction and in both, and "
        "through the host?",
    .expectation = R"(
        Two H100 have 18 NVLinks of 25 GB/s each way, 450 GB/s, of which a copy engine reaches some 390 to 400: 256 MiB
        in 0.68 ms, written or read alike. Both ways at once each GPU sends as much, for links carry both directions
        apart: the same time. 1 MiB takes 2.6 us on the link and 2 to 8 to begin: half the rate. Through the host in 16
        pieces the copy up and the copy down overlap: 256 MiB at some 45 GB/s of a PCIe link's 63, 6 ms.)",
    .predict =
        {{.arm = "write", .cases = {{"bytes", 256 * kMiB}}, .on = "h100", .step_time_s = {{612e-6, 748e-6}}},
         {.arm = "read", .cases = {{"bytes", 256 * kMiB}}, .on = "h100", .step_time_s = {{612e-6, 748e-6}}},
         {.arm = "both_ways", .cases = {{"bytes", 256 * kMiB}}, .on = "h100", .step_time_s = {{612e-6, 748e-6}}},
         {.arm = "write", .cases = {{"bytes", kMiB}}, .on = "h100", .step_time_s = {{4.6e-6, 10.6e-6}}},
         {.arm = "through_host", .cases = {{"bytes", 256 * kMiB}}, .on = "h100", .step_time_s = {{5.4e-3, 6.6e-3}}}},
    .claims = {"nvlink-faster"},
    .gpus = 2,
    .ceiling = true,
    .arms = {"write", "read", "both_ways", "through_host"},
    .l2 = gpulift::Cache::kBySize,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"bytes", {kMiB, 256 * kMiB}}},
    .quick = {{{"bytes", 256 * kMiB}}},
    .run = run,
};
