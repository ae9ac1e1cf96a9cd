#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/cuda/handles.hpp"
#include "core/harness/host_cache.hpp"
#include "core/harness/technique.hpp"
#include "kernels/fill.hpp"
#include "kernels/verify.hpp"
#include "workloads/host_memory.hpp"
#include "workloads/host_pattern.hpp"
#include "workloads/registered_host.hpp"
#include "workloads/rotation.hpp"

namespace {

using gpulift::Arm;
using gpulift::check;
using gpulift::PageableBuffer;
using gpulift::PinnedBuffer;
using gpulift::StreamHandle;

constexpr int kPoison = 0xFF;

/// The device's side of the copies, and where in it and in the arm's host memory the next copy takes place. Each step
/// copies the next of several slots, so that no arm finds its source in the processor's cache because it, and not the
/// copy engine, wrote or read it last. The device's side rotates too.
struct Lane {
  Lane(gpulift::Device& device, bool down, std::size_t bytes, std::uint64_t seed)
      : down(down),
        seed(seed),
        slots(bytes, gpulift::footprint_beyond(gpulift::last_level_cache_bytes())),
        device_data(device, slots.bytes()) {
    if (down) return;
    gpulift::fill_pattern(device_data.data(), device_data.bytes(), seed, nullptr);
    check(cudaStreamSynchronize(nullptr));
  }

  /// Host memory of an arm: the source's pattern, or pages that were touched once.
  void prepare(std::span<std::byte> host_data) const {
    if (down) {
      gpulift::fill_host_pattern(host_data, seed);
    } else {
      gpulift::fill_host_bytes(host_data, std::byte{kPoison});
    }
  }
  void copy(std::byte* host_data, std::size_t offset, StreamHandle stream) const {
    std::byte* const device_slot = device_data.data() + offset;
    if (down) {
      check(cudaMemcpyAsync(device_slot, host_data, slots.slot_bytes(), cudaMemcpyHostToDevice, stream));
    } else {
      check(cudaMemcpyAsync(host_data, device_slot, slots.slot_bytes(), cudaMemcpyDeviceToHost, stream));
    }
  }

  bool down;
  std::uint64_t seed;
  gpulift::Rotation slots;
  gpulift::DeviceBuffer<std::byte> device_data;
  std::span<std::byte> host_data = {};  // of the arm that was made or run last: what the check looks at
};

/// Pageable memory whose pages the calling thread touched first, which decides on which NUMA node they lie: that thread
/// pins or registers the memory of the other arms, and they would lie elsewhere than pages that all threads fill.
std::shared_ptr<const PageableBuffer> touched_pageable(std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  auto memory = std::make_shared<const PageableBuffer>(bytes);
  for (std::size_t at = 0; at < bytes; at += kPage) memory->data()[at] = std::byte{};
  return memory;
}

/// The step of an arm whose memory is ready: copies the next slot. `memory` keeps alive what the data lies in.
gpulift::Step copy_slots(Lane& lane, std::span<std::byte> host_data, std::shared_ptr<const void> memory) {
  lane.prepare(host_data);
  lane.host_data = host_data;
  return [&lane, host_data, memory = std::move(memory)](StreamHandle stream) {
    lane.host_data = host_data;
    const std::size_t offset = lane.slots.next_offset();
    lane.copy(host_data.data() + offset, offset, stream);
  };
}

gpulift::Step pageable(Lane& lane) {
  auto memory = touched_pageable(lane.slots.bytes());
  const auto data = memory->span();
  return copy_slots(lane, data, std::move(memory));
}

gpulift::Step pinned(Lane& lane, gpulift::Device& device) {
  auto memory = std::make_shared<const PinnedBuffer<std::byte>>(device, lane.slots.bytes());
  return copy_slots(lane, {memory->data(), memory->bytes()}, memory);
}

gpulift::Step registered_once(Lane& lane, gpulift::Device& device) {
  struct Memory {
    Memory(gpulift::Device& device, std::size_t bytes)
        : pageable(bytes), registered(device, pageable.data(), pageable.bytes()) {}
    PageableBuffer pageable;
    gpulift::RegisteredHost registered;
  };
  auto memory = std::make_shared<const Memory>(device, lane.slots.bytes());
  return copy_slots(lane, memory->pageable.span(), memory);
}

/// What a loader does that pins every batch anew: a fresh pinned buffer, the batch copied by the processor between it
/// and the pageable memory, and the wait without which the buffer could not be freed.
gpulift::Step pinned_afresh(Lane& lane, gpulift::Device& device) {
  auto memory = touched_pageable(lane.slots.bytes());
  lane.prepare(memory->span());
  lane.host_data = memory->span();
  return [&lane, &device, memory = std::move(memory)](StreamHandle stream) {
    lane.host_data = memory->span();
    const std::size_t offset = lane.slots.next_offset();
    const PinnedBuffer<std::byte> staging(device, lane.slots.slot_bytes());
    if (lane.down) std::memcpy(staging.data(), memory->data() + offset, staging.bytes());
    lane.copy(staging.data(), offset, stream);
    check(cudaStreamSynchronize(stream));
    if (!lane.down) std::memcpy(memory->data() + offset, staging.data(), staging.bytes());
  };
}

/// What a loader does that keeps its pinned blocks, as PyTorch's pin_memory: a block is written again once the copy out
/// of it is done.
gpulift::Step pinned_block(Lane& lane, gpulift::Device& device) {
  struct Block {
    Block(gpulift::Device& device, std::size_t bytes) : memory(device, bytes), copied(gpulift::make_ordering_event()) {}
    PinnedBuffer<std::byte> memory;
    gpulift::UniqueEvent copied;
  };
  auto memory = touched_pageable(lane.slots.bytes());
  lane.prepare(memory->span());
  lane.host_data = memory->span();
  auto blocks = std::make_shared<const std::array<Block, 2>>(
      std::array<Block, 2>{Block(device, lane.slots.slot_bytes()), Block(device, lane.slots.slot_bytes())});
  return [&lane, memory = std::move(memory), blocks, next = std::size_t{0}](StreamHandle stream) mutable {
    lane.host_data = memory->span();
    const std::size_t offset = lane.slots.next_offset();
    const Block& block = (*blocks)[next++ % blocks->size()];
    check(cudaEventSynchronize(block.copied.get()));
    if (lane.down) std::memcpy(block.memory.data(), memory->data() + offset, block.memory.bytes());
    lane.copy(block.memory.data(), offset, stream);
    check(cudaEventRecord(block.copied.get(), stream));
    if (lane.down) return;
    check(cudaStreamSynchronize(stream));
    std::memcpy(memory->data() + offset, block.memory.data(), block.memory.bytes());
  };
}

void run(gpulift::Trial& trial) {
  const auto bytes = static_cast<std::size_t>(trial.number("bytes"));
  const std::string direction = trial.word("direction");
  gpulift::Device& device = trial.device();
  Lane lane(device, direction == "h2d", bytes, trial.seed());
  const gpulift::Verifier verifier(device);

  trial.note("footprint_bytes", std::to_string(lane.slots.bytes()));
  trial.cost({.bytes = static_cast<double>(bytes), .items = 1, .roof = "host_link/" + direction});
  trial.check({.meaning = "exact bytes",
               .poison =
                   [&](StreamHandle stream) {
                     if (lane.down) {
                       check(cudaMemsetAsync(lane.device_data.data(), kPoison, lane.device_data.bytes(), stream));
                     } else {
                       gpulift::fill_host_bytes(lane.host_data, std::byte{kPoison});
                     }
                   },
               .error =
                   [&](StreamHandle stream) {
                     const std::size_t offset = lane.slots.offset();
                     const std::uint64_t first_word = offset / sizeof(std::uint64_t);
                     check(cudaStreamSynchronize(stream));
                     if (!lane.down) {
                       return static_cast<double>(
                           gpulift::wrong_host_bytes(lane.host_data.subspan(offset, bytes), lane.seed, first_word));
                     }
                     return verifier.wrong_bytes(lane.device_data.data() + offset, bytes, lane.seed, stream,
                                                 first_word);
                   },
               .tolerance = 0});

  // A copy from pageable memory keeps the host busy, so the host's clock judges all arms: from the first call to the
  // end of the last copy.
  const auto arm = [](const char* name, std::function<gpulift::Step()> make) {
    return Arm{.name = name, .make = std::move(make), .clock = gpulift::Clock::kHost};
  };
  trial.compare({arm("pageable", [&] { return pageable(lane); }), arm("pinned", [&] { return pinned(lane, device); }),
                 arm("registered_once", [&] { return registered_once(lane, device); }),
                 arm("pinned_afresh", [&] { return pinned_afresh(lane, device); }),
                 arm("pinned_block", [&] { return pinned_block(lane, device); })});
}

constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kMiB = 1024 * kKiB;

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What is page-locked host memory worth to a copy between host and device?",
    .expectation = R"(
        From pinned memory the copy engine works alone: 2 to 3 us to issue and 55 GB/s, 1.2 ms for 64 MiB. From pageable
        memory one core first copies into the driver's pinned buffers, at 8 to 15 GB/s in a pipeline with the engine:
        4.5 to 8 ms, so pinned is 4 to 7 times as fast. At 64 KiB the engine needs 1.2 us, so pinned is bound by its
        issue (3 us), pageable by copy and wait (8 to 12 us): 3 to 4 times. Registered memory is the same once its pages
        are locked. Pinning afresh locks 16384 pages of 4 KiB for 64 MiB, at 0.1 to 0.3 us each 2 to 5 ms, copies at 10
        GB/s (6.7 ms), and unlocks: slower than pageable at every size, most at small ones, where allocation and release
        take 50 us or more. A pinned block that is kept saves all of that and leaves one core's copy, at 10 GB/s and beside
        the engine's: 6.7 ms for 64 MiB, as pageable; at 64 KiB 6 us and more than pageable, which waits.)",
    .predict = {{.arm = "pinned", .cases = {{"bytes", 64 * kMiB}}, .on = "nvidia", .speedup = {{4, 7}}},
                {.arm = "pinned", .cases = {{"bytes", 64 * kKiB}}, .on = "nvidia", .speedup = {{3, 4}}},
                {.arm = "registered_once", .cases = {{"bytes", 64 * kMiB}}, .on = "nvidia", .speedup = {{4, 7}}},
                {.arm = "registered_once", .cases = {{"bytes", 64 * kKiB}}, .on = "nvidia", .speedup = {{3, 4}}},
                {.arm = "pinned_block",
                 .cases = {{"direction", "h2d"}, {"bytes", 64 * kMiB}},
                 .on = "nvidia",
                 .step_time_s = {{6.03e-3, 7.37e-3}}},
                {.arm = "pinned_block",
                 .cases = {{"direction", "h2d"}, {"bytes", 64 * kKiB}},
                 .on = "nvidia",
                 .step_time_s = {{5.4e-6, 6.6e-6}}}},
    .found = R"(
        On an H100's host pinned_block takes 15 ms for 64 MiB and 15 us for 64 KiB: a core copies at 4.4 GB/s, not 10,
        and pageable is slow as well, 11 ms; why is not known. On an H200 of 21 November pinned has 2.8 to the host:
        pageable takes 3.4 ms for 64 MiB, 20 GB/s and not 8 to 15; on 24 November it took 4.8 to 5.5.)",
    .claims = {"pinned-copy-faster", "pin-then-copy-faster"},
    .arms = {"pageable", "pinned", "registered_once", "pinned_afresh", "pinned_block"},
    .l2 = gpulift::Cache::kCold,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"direction", {"h2d", "d2h"}},
              {"bytes", {4 * kKiB, 64 * kKiB, kMiB, 16 * kMiB, 64 * kMiB, 256 * kMiB, 1024 * kMiB}}},
    .quick = {{{"direction", "h2d"}, {"bytes", 64 * kKiB}}, {{"bytes", 64 * kMiB}}},
    .run = run,
};
