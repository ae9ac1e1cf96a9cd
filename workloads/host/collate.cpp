#include "workloads/host/collate.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace gpulift {
namespace {

constexpr std::size_t kImageBytes = 3 * 224 * 224 * sizeof(float);
constexpr std::size_t kBatchesPerProducer = 4;
constexpr std::size_t kQueuedPerProducer = 2;  // PyTorch's default prefetch_factor

struct Block {
  std::size_t size_bytes;
  std::uint64_t pattern;
  std::byte* data = nullptr;
};

using Batch = std::vector<Block>;

/// Log-uniform below 1 KiB (small ones are frequent), uniform for tokens.
class Sizes {
 public:
  explicit Sizes(std::uint64_t seed) : random_(seed) {}

  Block metadata() {
    return block(static_cast<std::size_t>(std::exp2(std::uniform_real_distribution(6.0, 10.0)(random_))));
  }
  Block tokens() { return block(std::uniform_int_distribution<std::size_t>(4096, 8192)(random_)); }
  Block image() { return block(kImageBytes); }

 private:
  Block block(std::size_t size_bytes) { return {size_bytes, random_()}; }

  std::mt19937_64 random_;
};

/// Numbers of blocks give batches of 1 to 10 MB, or enough blocks to hide the hand-over of a batch (some microseconds).
Batch make_batch(CollateMix mix, Sizes& sizes) {
  constexpr int kMetadataBlocks = 4096;
  constexpr int kTokenBlocks = 512;
  constexpr int kSamples = 16;
  constexpr int kMetadataPerSample = 8;
  Batch batch;
  const auto add = [&](int count, Block (Sizes::*next)()) {
    for (int i = 0; i < count; ++i) batch.push_back((sizes.*next)());
  };
  if (mix == CollateMix::kMetadata) add(kMetadataBlocks, &Sizes::metadata);
  if (mix == CollateMix::kTokens) add(kTokenBlocks, &Sizes::tokens);
  if (mix == CollateMix::kImages) add(kSamples, &Sizes::image);
  for (int sample = 0; mix == CollateMix::kCollate && sample < kSamples; ++sample) {
    add(1, &Sizes::image);
    add(1, &Sizes::tokens);
    add(kMetadataPerSample, &Sizes::metadata);
  }
  return batch;
}

void allocate_and_write(Batch& batch) {
  for (Block& block : batch) {
    block.data = static_cast<std::byte*>(std::malloc(block.size_bytes));
    if (block.data == nullptr) continue;  // counted as wrong by whoever reads it
    const std::size_t words = block.size_bytes / sizeof block.pattern;
    std::fill_n(reinterpret_cast<std::uint64_t*>(block.data), words, block.pattern);
    std::memcpy(block.data + words * sizeof block.pattern, &block.pattern, block.size_bytes % sizeof block.pattern);
  }
}

std::size_t count_wrong_bytes(const Block& block) {
  if (block.data == nullptr) return block.size_bytes;
  const auto* words = reinterpret_cast<const std::uint64_t*>(block.data);
  const std::size_t count = block.size_bytes / sizeof block.pattern;
  const auto* rest = block.data + count * sizeof block.pattern;
  std::uint64_t difference = 0;
  for (std::size_t i = 0; i < count; ++i) difference |= words[i] ^ block.pattern;
  if (difference == 0 && std::memcmp(rest, &block.pattern, block.size_bytes % sizeof block.pattern) == 0) return 0;
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < block.size_bytes; ++i) {
    const auto expected = static_cast<std::byte>(block.pattern >> (i % sizeof block.pattern * 8));
    wrong += block.data[i] == expected ? 0 : 1;
  }
  return wrong;
}

std::size_t read_and_free(Batch& batch) {
  std::size_t wrong_bytes = 0;
  for (Block& block : batch) {
    wrong_bytes += count_wrong_bytes(block);
    std::free(block.data);
    block.data = nullptr;
  }
  return wrong_bytes;
}

std::size_t bytes_of(const Batch& batch) {
  std::size_t bytes = 0;
  for (const Block& block : batch) bytes += block.size_bytes;
  return bytes;
}

/// First in, first out; allocates only when it is made.
class BoundedQueue {
 public:
  explicit BoundedQueue(std::size_t capacity) : slots_(capacity) {}

  void push(Batch* batch) {
    std::unique_lock lock(mutex_);
    not_full_.wait(lock, [this] { return filled_ < slots_.size(); });
    slots_[(first_ + filled_++) % slots_.size()] = batch;
    not_empty_.notify_one();
  }

  Batch* pop() {
    std::unique_lock lock(mutex_);
    not_empty_.wait(lock, [this] { return filled_ > 0; });
    Batch* batch = slots_[first_];
    first_ = (first_ + 1) % slots_.size();
    --filled_;
    not_full_.notify_one();
    return batch;
  }

  bool empty() {
    const std::scoped_lock lock(mutex_);
    return filled_ == 0;
  }

 private:
  std::mutex mutex_;
  std::condition_variable not_full_;
  std::condition_variable not_empty_;
  std::vector<Batch*> slots_;
  std::size_t first_ = 0;
  std::size_t filled_ = 0;
};

}  // namespace

CollateMix collate_mix(std::string_view name) {
  if (name == "metadata") return CollateMix::kMetadata;
  if (name == "tokens") return CollateMix::kTokens;
  if (name == "images") return CollateMix::kImages;
  if (name == "collate") return CollateMix::kCollate;
  throw std::invalid_argument("no mix of blocks has the name " + std::string(name));
}

class CollateLoad::Threads {
 public:
  Threads(CollateMix mix, std::size_t threads, std::uint64_t seed)
      : producers_(std::max<std::size_t>(threads / 2, 1)),
        queue_(kQueuedPerProducer * producers_),
        turn_(static_cast<std::ptrdiff_t>(threads + 1)) {
    Sizes sizes(seed);
    for (BatchSet& set : sets_) {
      set.resize(kBatchesPerProducer * producers_);
      for (Batch& batch : set) batch = make_batch(mix, sizes);
    }
    for (std::size_t i = 0; threads > 1 && i < threads; ++i) {
      threads_.emplace_back([this, i, consumers = threads - producers_] { serve(i, consumers); });
    }
    take_turn(kQueuedPerProducer * producers_, 0);
  }

  ~Threads() {
    while (!queue_.empty()) read_and_free(*queue_.pop());
    if (threads_.empty()) return;
    ended_ = true;
    turn_.arrive_and_wait();
  }

  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  void run() {
    poison();
    take_turn(batches(), batches());
  }

  void poison() {
    wrong_bytes_ = 0;
    read_batches_ = 0;
  }

  std::size_t blocks() const { return batches() * sets_[0][0].size(); }
  std::size_t bytes() const {
    std::size_t bytes = 0;
    for (const Batch& batch : sets_[0]) bytes += bytes_of(batch);
    return bytes;
  }
  std::size_t wrong_bytes() const { return wrong_bytes_ + (batches() - read_batches_) * bytes_of(sets_[0][0]); }

 private:
  using BatchSet = std::vector<Batch>;

  std::size_t batches() const { return sets_[0].size(); }

  /// Two sets take turns: when one is allocated again, all of its batches have been freed in the turn before.
  void take_turn(std::size_t produced, std::size_t consumed) {
    produced_ = produced;
    consumed_ = consumed;
    set_ = &sets_[set_ == &sets_[0] ? 1 : 0];
    if (threads_.empty()) return run_alone();
    turn_.arrive_and_wait();  // begins
    turn_.arrive_and_wait();  // has ended
  }

  void run_alone() {
    for (std::size_t i = 0; i < produced_; ++i) {
      allocate_and_write((*set_)[i]);
      if (i < consumed_) consume(*queue_.pop());
      queue_.push(&(*set_)[i]);
    }
  }

  void serve(std::size_t thread, std::size_t consumers) {
    for (;;) {
      turn_.arrive_and_wait();
      if (ended_) return;
      if (thread < producers_) {
        for (std::size_t i = thread; i < produced_; i += producers_) {
          allocate_and_write((*set_)[i]);
          queue_.push(&(*set_)[i]);
        }
      } else {
        for (std::size_t i = thread - producers_; i < consumed_; i += consumers) consume(*queue_.pop());
      }
      turn_.arrive_and_wait();
    }
  }

  void consume(Batch& batch) {
    wrong_bytes_ += read_and_free(batch);
    ++read_batches_;
  }

  std::size_t producers_;
  std::array<BatchSet, 2> sets_;
  BoundedQueue queue_;
  std::atomic<std::size_t> wrong_bytes_ = 0;
  std::atomic<std::size_t> read_batches_ = 0;
  std::barrier<> turn_;
  // Written between two turns only.
  BatchSet* set_ = nullptr;
  std::size_t produced_ = 0;
  std::size_t consumed_ = 0;
  bool ended_ = false;
  std::vector<std::jthread> threads_;  // last, so that they end before what they use
};

CollateLoad::CollateLoad(CollateMix mix, int threads, std::uint64_t seed) {
  if (threads < 1) throw std::invalid_argument("a load needs at least one thread");
  threads_ = std::make_unique<Threads>(mix, static_cast<std::size_t>(threads), seed);
}

CollateLoad::~CollateLoad() = default;

void CollateLoad::run() { threads_->run(); }
std::size_t CollateLoad::blocks() const { return threads_->blocks(); }
std::size_t CollateLoad::bytes() const { return threads_->bytes(); }
void CollateLoad::poison() { threads_->poison(); }
std::size_t CollateLoad::wrong_bytes() const { return threads_->wrong_bytes(); }

}  // namespace gpulift
