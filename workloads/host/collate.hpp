#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace gpulift {

/// What a batch of a data loader is made of.
enum class CollateMix {
  kMetadata,  // labels, boxes, keys: 64 B to 1 KiB
  kTokens,    // token ids and masks: 4 to 8 KiB
  kImages,    // 3 x 224 x 224 floats: 588 KiB
  kCollate,   // samples of one image, one block of tokens and eight of metadata
};

/// The mix of that name ("metadata", "tokens", "images", "collate"); throws std::invalid_argument for another.
CollateMix collate_mix(std::string_view name);

/// The memory traffic of a data loader: threads that allocate the blocks of a batch and write them, a bounded queue,
/// and threads that read and free them. With one thread, the same thread frees what it allocated; otherwise half of
/// them (at least one) allocate and the others free, so that every block is freed by a thread that did not allocate it.
/// The threads live as long as the object. The queue is full between two calls of run(), as that of a loader that is
/// ahead of the training step: two batches per allocating thread, of which the oldest is taken first.
class CollateLoad {
 public:
  /// Sizes, their order and the contents follow from the seed. Throws std::invalid_argument for less than one thread.
  CollateLoad(CollateMix mix, int threads, std::uint64_t seed);
  ~CollateLoad();
  CollateLoad(const CollateLoad&) = delete;
  CollateLoad& operator=(const CollateLoad&) = delete;

  /// Allocates, writes and queues four batches per allocating thread, and reads and frees as many older ones. Uses
  /// malloc() and free() for nothing else.
  void run();

  /// Blocks of one run(), each one pair of malloc() and free().
  std::size_t blocks() const;
  /// Bytes of these blocks, of which each is written once and read once. Every second run() has other blocks of the
  /// same mix, and as many.
  std::size_t bytes() const;

  /// Forgets what the last run() found.
  void poison();
  /// Bytes of the last run() that were not what their producer wrote when they were freed, with the bytes of blocks
  /// that were never read. 0 when exact.
  std::size_t wrong_bytes() const;

 private:
  class Threads;
  std::unique_ptr<Threads> threads_;
};

}  // namespace gpulift
