"""input/cache: what copies of a slow store's samples on the disk or in memory are worth."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Any

from gpulift_samples import (
    Batch,
    Pack,
    Sample,
    ThrottledReader,
    cold,
    folder_for,
    note_of_cold,
    read_whole,
    seeded_samples,
    shuffled,
)
from gpulift_worker import Arm

TECHNIQUE = {
    "question": "After how many epochs does a cache in front of a slow store pay, and how much?",
    "expectation": (
        "A sample of 112 KiB takes 5 + 1.15 = 6.15 ms from a store of 100 MB/s and 5 ms, one "
        "after another, and 0.5 + 0.115 + 0.1 (a sleep's delay) = 0.7 ms at 1 GB/s and 0.5 ms. "
        "First epoch: a copy in memory costs nothing, 1.0; one on the disk 0.05 ms a sample, 0.99 "
        "and 0.93. Later ones: from the disk, cold, 0.12 ms: 51 and 6; from memory 10 us: 600 and "
        "70. Break-even in epochs, (first - later) / (remote - later): 1.0 to 1.1, so within the "
        "second epoch. 16 requests at once hide the latency without a copy in every epoch: 32 "
        "samples take 32 x 1.15 + 5 = 42 ms in place of 197, 4.7, and 32 x 0.115 + 0.5 = 4.2 ms "
        "in place of 22, 5.3: at 1 GB/s as good as a local disk that is read sample by sample."
    ),
    "claims": ["cached-storage-10x", "local-disk-faster"],
    "arms": ["remote_each_epoch", "local_copy", "ram_cache", "read_ahead_16"],
    "sweep": {"store": ["100MB_s", "1GB_s"], "epoch": ["first", "later"]},
    "check": {"meaning": "wrong bytes of all samples in their order", "tolerance": 0},
}
STORES = {"100MB_s": (1e8, 5e-3), "1GB_s": (1e9, 5e-4)}  # bytes a second, and latency in s
COUNT, SIZE = 32, 112 << 10
IN_FLIGHT = 16
EPOCHS = 3  # of which metrics are the median


class Remote:
    """Samples in an emulated store: a local file's, late."""

    def __init__(self, folder: Path, samples: Sequence[Sample], reader: ThrottledReader) -> None:
        self._pack = Pack(folder, samples, [])
        self._reader = reader
        self._file = os.open(self._pack.files[0], os.O_RDONLY | os.O_CLOEXEC)

    def read(self, number: int) -> Sample:
        """One request."""
        return self._reader.read(self._file, *self._pack.place(number))


class NoCache:
    """Asks the store each time."""

    files: Sequence[Path] = ()

    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    def clear(self) -> None:
        """Nothing is kept."""

    def read(self, order: Sequence[int]) -> Iterator[Sample]:
        """One after another."""
        return map(self._remote.read, order)


class ReadAhead(NoCache):
    """Asks for several at a time, and keeps none."""

    def __init__(self, remote: Remote) -> None:
        super().__init__(remote)
        self._threads = ThreadPoolExecutor(IN_FLIGHT)

    def read(self, order: Sequence[int]) -> Iterator[Sample]:
        """In their order."""
        return self._threads.map(self._remote.read, order)


class RamCache(NoCache):
    """Keeps all in memory."""

    def __init__(self, remote: Remote) -> None:
        super().__init__(remote)
        self._kept: dict[int, Sample] = {}

    def clear(self) -> None:
        """As ahead of the first epoch."""
        self._kept.clear()

    def read(self, order: Sequence[int]) -> Iterator[Sample]:
        """From memory, where it is there."""
        for number in order:
            if number not in self._kept:
                self._kept[number] = self._remote.read(number)
            yield self._kept[number]


class LocalCopy(NoCache):
    """Keeps all in a file on the disk."""

    def __init__(self, remote: Remote, folder: Path) -> None:
        super().__init__(remote)
        self.files = [folder / "copy"]
        self._file = os.open(self.files[0], os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        self._kept: set[int] = set()

    def clear(self) -> None:
        """As ahead of the first epoch."""
        os.truncate(self._file, 0)
        self._kept.clear()

    def read(self, order: Sequence[int]) -> Iterator[Sample]:
        """From the disk, where it is there."""
        for number in order:
            if number in self._kept:
                yield read_whole(self._file, SIZE, SIZE * number, f"sample {number}")
                continue
            sample = self._remote.read(number)
            os.pwrite(self._file, sample, SIZE * number)
            self._kept.add(number)
            yield sample


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A step is an epoch: the first, ahead of which the cache is emptied, or a later one, ahead of
    which what is on the disk is put out of memory."""
    folder = folder_for(arm, 8.0 * COUNT * SIZE)  # of the store and a copy, for all arms
    order = shuffled(COUNT, seed)
    bytes_per_s, latency_s = STORES[str(point["store"])]
    remote = Remote(
        folder, seeded_samples(COUNT, SIZE, seed), ThrottledReader(bytes_per_s, latency_s)
    )
    cache = cache_of(arm, remote, folder)
    batch = Batch(COUNT, SIZE)

    def step() -> None:
        batch.fill(cache.read(order))

    around: dict[str, Any] = {"before": cache.clear}
    if point["epoch"] == "later":
        step()
        around = cold(cache.files) if cache.files else {}

    def metrics() -> dict[str, float]:
        return break_even(step, cache, lambda: batch.fill(map(remote.read, order)))

    return Arm(
        step=step,
        error=lambda: batch.wrong_bytes(seeded_samples(COUNT, SIZE, seed), order),
        items=COUNT,
        item="sample",
        bytes=COUNT * SIZE,
        metrics=metrics if arm in ("local_copy", "ram_cache") else dict,
        notes={
            "store": f"emulated: {bytes_per_s / 1e6:g} MB/s, {1e3 * latency_s:g} ms a request",
            "local_copy": note_of_cold(folder),
        },
        **around,
    )


def cache_of(arm: str, remote: Remote, folder: Path) -> NoCache:
    """What the arm has in front of the store."""
    if arm == "local_copy":
        return LocalCopy(remote, folder)
    caches = {"remote_each_epoch": NoCache, "ram_cache": RamCache, "read_ahead_16": ReadAhead}
    return caches[arm](remote)


def break_even(
    epoch: Callable[[], None], cache: NoCache, without_cache: Callable[[], None]
) -> dict[str, float]:
    """Epochs after which the cache has paid for itself, with the times that this follows from; the
    last epoch leaves the cache filled."""
    first_s, later_s, remote_s = [], [], []
    put_out = cold(cache.files)["before"]
    for _ in range(EPOCHS):
        remote_s.append(duration_s(without_cache))
        cache.clear()
        first_s.append(duration_s(epoch))
        put_out()
        later_s.append(duration_s(epoch))
    first, later, remote = map(statistics.median, (first_s, later_s, remote_s))
    times = {"first_epoch_s": first, "later_epoch_s": later, "remote_epoch_s": remote}
    # A cache that is no faster than the store never pays.
    return times | (
        {"break_even_epochs": (first - later) / (remote - later)} if later < remote else {}
    )


def duration_s(work: Callable[[], None]) -> float:
    """Of one run."""
    start_s = monotonic()
    work()
    return monotonic() - start_s
