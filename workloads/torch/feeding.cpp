#include "feeding.hpp"

#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/utils.h>

#include <array>

namespace gpulift {
namespace {

torch::Tensor moved(const torch::Tensor& tensor, torch::Device device, bool non_blocking) {
  return tensor.defined() ? tensor.to(tensor.options().device(device), non_blocking) : tensor;
}

Batch moved(const Batch& batch, torch::Device device, bool non_blocking) {
  return {moved(batch.input, device, non_blocking), moved(batch.target, device, non_blocking),
          moved(batch.lengths, device, non_blocking)};
}

void copy(const Batch& from, Batch& to) {
  to.input.copy_(from.input, /*non_blocking=*/true);
  to.target.copy_(from.target, /*non_blocking=*/true);
  if (from.lengths.defined()) to.lengths.copy_(from.lengths, /*non_blocking=*/true);
}

Batch pinned(const Batch& batch) {
  return {batch.input.pin_memory(), batch.target.pin_memory(),
          batch.lengths.defined() ? batch.lengths.pin_memory() : batch.lengths};
}

double bytes_of(const torch::Tensor& tensor) { return tensor.defined() ? static_cast<double>(tensor.nbytes()) : 0; }

}  // namespace

torch::Tensor fingerprint(const Batch& batch) {
  const torch::Tensor target = batch.target.to(torch::kFloat64).flatten();
  const torch::Tensor place = torch::arange(1, target.numel() + 1, target.options());
  return torch::stack({batch.input.sum(torch::kFloat64), (target * place).sum()});
}

/// Two batches on the device: one is learnt from while the other is filled.
class FedRun::Prefetcher {
 public:
  Prefetcher(const Batch& first, torch::Device device, StreamHandle side_stream)
      : side_(c10::cuda::getStreamFromExternal(side_stream, device.index())) {
    for (Slot& slot : slots_) slot.batch = moved(first, device, /*non_blocking=*/false);
  }

  /// What was filled last; the current stream waits for it.
  const Batch& take(std::size_t step) {
    Slot& slot = slots_[step % slots_.size()];
    slot.filled.block(c10::cuda::getCurrentCUDAStream());
    return slot.batch;
  }

  /// Fills the slot of a step, as soon as the step that used it before has ended.
  void fill(std::size_t step, const Batch& batch) {
    Slot& slot = slots_[step % slots_.size()];
    const c10::cuda::CUDAStreamGuard guard(side_);
    slot.used.block(side_);
    copy(batch, slot.batch);
    slot.filled.record(side_);
  }

  /// The current stream's work so far used the slot.
  void used(std::size_t step) { slots_[step % slots_.size()].used.record(c10::cuda::getCurrentCUDAStream()); }

 private:
  struct Slot {
    Batch batch;
    at::cuda::CUDAEvent filled;
    at::cuda::CUDAEvent used;
  };
  c10::cuda::CUDAStream side_;
  std::array<Slot, 2> slots_;
};

FedRun::FedRun(const Workload& workload, const TrainingOptions& options, torch::Device device, std::uint64_t seed,
               Feed feed, StreamHandle side_stream)
    : device_(device), feed_(feed), run_(workload, options, device, seed) {
  torch::manual_seed(seed + 1);
  for (std::size_t i = 0; i < kPool; ++i) {
    Batch batch = workload.make_batch();
    if (options.channels_last) batch.input = batch.input.contiguous(torch::MemoryFormat::ChannelsLast);
    pool_.push_back(feed == Feed::kPageable ? batch : pinned(batch));
  }
  if (feed == Feed::kPrefetch) prefetcher_ = std::make_unique<Prefetcher>(pool_[0], device, side_stream);
}

FedRun::~FedRun() = default;

Batch FedRun::next() {
  const Batch& due = pool_[steps_ % kPool];
  if (feed_ != Feed::kPrefetch) return moved(due, device_, feed_ == Feed::kNonBlocking);
  const Batch& ready = prefetcher_->take(steps_);
  prefetcher_->fill(steps_ + 1, pool_[(steps_ + 1) % kPool]);
  return ready;
}

void FedRun::step() {
  run_.use_batch(next());
  if (watched_) seen_.push_back(fingerprint(run_.batch()));
  run_.step();
  if (watched_) seen_.push_back(fingerprint(run_.batch()));
  if (prefetcher_) prefetcher_->used(steps_);
  ++steps_;
}

std::size_t FedRun::wrong_steps() {
  std::size_t wrong = 0;
  for (std::size_t step = 0; 2 * step < seen_.size(); ++step) {
    const torch::Tensor due = fingerprint(moved(pool_[step % kPool], device_, /*non_blocking=*/false));
    if (!torch::equal(seen_[2 * step], due) || !torch::equal(seen_[2 * step + 1], due)) ++wrong;
  }
  watched_ = false;
  seen_.clear();
  return wrong;
}

double FedRun::copied_bytes() const {
  return bytes_of(pool_[0].input) + bytes_of(pool_[0].target) + bytes_of(pool_[0].lengths);
}

}  // namespace gpulift
