"""input/transport: how a batch gets from a worker process to the training loop."""

from __future__ import annotations

import mmap
import multiprocessing
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gpulift_work.loaders import (
    PREFETCH,
    Key,
    Keys,
    Order,
    ProcessLoader,
    Rounds,
    Samples,
    require_shared_memory,
)
from gpulift_work.malloc import fix_malloc, page_faults, page_faults_of
from gpulift_work.training import leave_a_core_free
from gpulift_worker import Arm
from torch.utils.data import default_collate

TECHNIQUE = {
    "question": "What does it cost to bring a batch from a worker process to the training loop?",
    "expectation": (
        "The worker copies a batch that it has into what carries it, and the loop reads it all "
        "once. Two batches are ahead, so that the time is that of the slower side. Shared memory "
        "of torch's: one copy into fresh pages, a file descriptor, and a mapping whose pages fault "
        "in the loop: 9.6 MB are 2,350 pages of 0.25 us, 0.6 ms, and 1 ms of reading: 2.1 ms of "
        "processor in the loop. An array in a pipe: pickled, written and read 64 KiB at a time, "
        "copied once more: 7.7 ms, 0.3 of the speed; bytes one copy more: 0.27. An arena that is "
        "kept has no fresh pages: 1 ms of reading, and the copy bounds, 2 of the speed. At 38 MB "
        "all 4 times as long. At 64 KiB the descriptor costs 0.1 ms and the pipe 0.03: the array "
        "is 1.5 times as fast, the arena 2. A name in place of a descriptor: 1.0."
    ),
    "predict": [
        "shared_memory_by_name 0.9-1.1",
        "bytes:9633792: numpy 0.27-0.33, bytes 0.243-0.297, arena 1.8-2.2",
        "bytes:38535168: numpy 0.27-0.33, bytes 0.243-0.297, arena 1.8-2.2",
        "bytes:65536: numpy 1.35-1.65, arena 1.8-2.2",
    ],
    "found": (
        "Shared memory takes 7 ms for 9.6 MB, not 2.1: the loop takes 3.8 ms of processor, of "
        "which 0.5 are reading and the rest 1.4 us for each of 2,352 page faults, not 0.25. An "
        "arena has none. At 64 KiB a descriptor costs the loop 0.27 ms more than the pipe, not "
        "0.07, and a name, which passes none, has 1.6; on an H200's host 1.8 ms, so that a name "
        "has 2.2, numpy 5.7 and an arena 7.8. Why bytes have 0.5 at 9.6 MB, in windows of 39 to "
        "87 ms, is not known."
    ),
    "arms": ["shared_memory", "shared_memory_by_name", "numpy", "bytes", "arena"],
    "l2": "none",
    "page_cache": "none",
    "sweep": {"bytes": [65536, 9633792, 38535168]},
    "check": {"meaning": "bytes that are not what the worker had", "tolerance": 0},
}
SOURCES = 2  # different batches, in turn
SLOTS = PREFETCH + 2  # of an arena: those ahead, the one that is read, and one to spare
COUNTED_ROUNDS = 5
# In a step: a worker pickles what it sends by a pipe when the one before is through, which may be
# behind the end of the window for one batch of it.
BATCHES = 4


@dataclass(frozen=True)
class Carrier:
    """How a batch is sent by the worker, and what the loop makes of it: an array of bytes."""

    send: Callable[[Key, Any], Any]
    receive: Callable[[Any], Any]


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """Batches taken and read."""
    size = int(point["bytes"])
    leave_a_core_free()
    malloc = fix_malloc()  # of the worker, too, which is forked
    if arm.startswith("shared_memory"):
        require_shared_memory((SLOTS + 1) * size)
    if arm == "shared_memory_by_name":
        torch.multiprocessing.set_sharing_strategy("file_system")
    generator = np.random.default_rng(seed)
    sources = [generator.integers(256, size=size, dtype=np.uint8) for _ in range(SOURCES)]
    sums = [word_sum(source) for source in sources]
    carrier = CARRIERS[arm](size)
    order = Order(SOURCES, 1, seed)

    def send(samples: list[tuple[Key, Any]]) -> tuple[Keys, Any]:
        ((key, source),) = samples
        return [key], carrier.send(key, source)

    loader = ProcessLoader(Samples(lambda key: sources[key[1]]), order, 1, collate=send)
    found: list[int] = []

    def read(batch: Any) -> None:
        found.append(word_sum(carrier.receive(batch)))

    rounds = Rounds(loader, order, read, BATCHES)
    loader.wait()

    def rest() -> None:
        rounds.rest()
        wrong = [one for one in found if one not in sums]
        found.clear()
        if wrong:
            raise RuntimeError(f"{len(wrong)} batches of a window came with other bytes")

    def error() -> float:
        ((_, number),), batch = rounds.last
        return float(np.count_nonzero(carrier.receive(batch) != sources[number]))

    def metrics() -> dict[str, float]:
        rest()
        workers = [worker.pid for worker in multiprocessing.active_children() if worker.pid]
        start_s, here, there = time.process_time(), page_faults(), page_faults_of(workers)
        for _ in range(COUNTED_ROUNDS):
            rounds.step()
        loader.wait()
        return {
            "loop_cpu_s": (time.process_time() - start_s) / (COUNTED_ROUNDS * BATCHES),
            "faults_per_step": (page_faults() - here) / COUNTED_ROUNDS,
            "worker_faults_per_step": (page_faults_of(workers) - there) / COUNTED_ROUNDS,
        }

    return Arm(
        step=rounds.step,
        error=error,
        synchronize=loader.wait,
        rest=rest,
        bytes=2.0
        * size
        * BATCHES,  # written by the worker and read by the loop, whatever lies between
        roof="host_memory",
        items=BATCHES,
        item="batch",
        metrics=metrics,
        notes=malloc,
    )


def word_sum(array: Any) -> int:
    """Reads all of it, as a copy to a GPU would."""
    return int(np.add.reduce(array.view(np.uint64), dtype=np.uint64))


def shared_memory(size: int) -> Carrier:
    """What torch does with every tensor: one of shared memory, of its own for each batch."""
    return Carrier(
        send=lambda _, source: default_collate([torch.from_numpy(source)]),
        receive=lambda tensor: tensor[0].numpy(),
    )


def array(size: int) -> Carrier:
    """What is no tensor is pickled and goes through a pipe."""
    return Carrier(send=lambda _, source: source, receive=lambda array: array)


def plain_bytes(size: int) -> Carrier:
    """The same, from and to bytes."""
    return Carrier(
        send=lambda _, source: source.tobytes(),
        receive=lambda data: np.frombuffer(data, np.uint8),
    )


def arena(size: int) -> Carrier:
    """Shared memory that is kept, of which a batch has a slot; only its number is sent.

    A slot is written again when SLOTS batches later one is made, which is asked for when that
    before last has been taken: nobody reads it any more.
    """
    shared = np.frombuffer(mmap.mmap(-1, SLOTS * size), np.uint8).reshape(SLOTS, size)
    shared[:] = 0  # all its pages are there
    written = [0]  # by the worker, whose copy this is

    def send(_: Key, source: Any) -> int:
        slot = written[0] % SLOTS
        written[0] += 1
        shared[slot] = source
        return slot

    return Carrier(send=send, receive=lambda slot: shared[slot])


CARRIERS: Mapping[str, Callable[[int], Carrier]] = {
    "shared_memory": shared_memory,
    "shared_memory_by_name": shared_memory,
    "numpy": array,
    "bytes": plain_bytes,
    "arena": arena,
}
