"""input/cache: what copies of a slow store's samples on the disk or in memory are worth."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Any

from gpulift_work.samples import (
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
        "Loaders have requests in flight: with 16 of them 32 samples of 112 KiB take 32 x 1.15 + 5 "
        "= 42 ms from a store of 100 MB/s and 5 ms, and 32 x 0.115 + 0.5 = 4.2 ms at 1 GB/s and "
        "0.5 ms. First epoch: a copy in memory costs nothing, 1.0; one on the disk 0.05 ms a "
        "sample, 0.96 and 0.72. Later ones: from the disk, cold, 0.12 ms a sample, 3.84 ms: 10.9 "
        "and 1.1; from memory 10 us: 131 and 13. Break-even in epochs, (first - later) / (remote "
        "- later): 1.0, so within the second epoch, but 5 for a copy on the disk at 1 GB/s. One "
        "after another, the control: 5 + 1.15 = 6.15 ms a sample, 0.21 of the speed, and 0.5 + "
        "0.115 + 0.1 (a sleep's delay) = 0.7 ms, 0.19."
    ),
    "predict": [
        {
            "case": {"store": "100MB_s"},
            "step_time_s": {"read_ahead_16": [0.0378, 0.0462]},
            "speedup": {"remote_each_epoch": [0.189, 0.231]},
        },
        {
            "case": {"store": "1GB_s"},
            "step_time_s": {"read_ahead_16": [0.00378, 0.00462]},
            "speedup": {"remote_each_epoch": [0.171, 0.209]},
        },
        {"case": {"epoch": "first"}, "speedup": {"ram_cache": [0.9, 1.1]}},
        {"case": {"store": "100MB_s", "epoch": "first"}, "speedup": {"local_copy": [0.864, 1.056]}},
        {"case": {"store": "1GB_s", "epoch": "first"}, "speedup": {"local_copy": [0.648, 0.792]}},
        {
            "case": {"store": "100MB_s", "epoch": "later"},
            "speedup": {"local_copy": [9.81, 11.99], "ram_cache": [117.9, 144.1]},
        },
        {
            "case": {"store": "1GB_s", "epoch": "later"},
            "speedup": {"local_copy": [0.99, 1.21], "ram_cache": [11.7, 14.3]},
        },
    ],
    "found": (
        "The records are of caches that asked the store for one sample after another in the first "
        "epoch, as the control does: 0.19 to 0.21. Since then they have 16 requests in flight. "
        "From memory 32 samples take 0.09 ms, not 0.3, since their 3.7 MB stay in the processor's "
        "cache (41 GB/s; inferred, not traced): 478 and 46."
    ),
    "arms": ["read_ahead_16", "local_copy", "ram_cache", "remote_each_epoch"],
    "controls": ["remote_each_epoch"],
    "l2": "none",
    "page_cache": "cold",
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


class ReadAhead:
    """Asks the store for several at a time, as loaders do, and keeps none."""

    files: Sequence[Path] = ()

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._threads = ThreadPoolExecutor(IN_FLIGHT)

    def clear(self) -> None:
        """Nothing is kept."""

    def read(self, order: Sequence[int]) -> Iterator[Sample]:
        """In their order."""
        return self._threads.map(self._remote.read, order)


class OneByOne(ReadAhead):
    """Asks when the one before is there."""

    def read(self, order: Sequence[int]) -> Iterator[Sample]:
        """In their order."""
        return map(self._remote.read, order)


class RamCache(ReadAhead):
    """Keeps all in memory."""

    def __init__(self, remote: Remote) -> None:
        super().__init__(remote)
        self._kept: dict[int, Sample] = {}

    def clear(self) -> None:
        """As ahead of the first epoch."""
        self._kept.clear()

    def read(self, order: Sequence[int]) -> Iterator[Sample]:
        """From memory, where it is there."""
        missing = super().read([number for number in order if number not in self._kept])
        for number in order:
            if number not in self._kept:
                self._kept[number] = next(missing)
            yield self._kept[number]


class LocalCopy(ReadAhead):
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
        missing = super().read([number for number in order if number not in self._kept])
        for number in order:
            if number in self._kept:
                yield read_whole(self._file, SIZE, SIZE * number, f"sample {number}")
                continue
            sample = next(missing)
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
        return break_even(step, cache, lambda: batch.fill(ReadAhead(remote).read(order)))

    return Arm(
        step=step,
        error=lambda: batch.wrong_bytes(seeded_samples(COUNT, SIZE, seed), order),
        items=COUNT,
        item="sample",
        bytes=COUNT * SIZE,
        metrics=metrics if arm in ("local_copy", "ram_cache") else dict,
        notes={
            "load": f"emulated: {bytes_per_s / 1e6:g} MB/s, {1e3 * latency_s:g} ms a request",
            "local_copy": note_of_cold(folder),
        },
        **around,
    )


def cache_of(arm: str, remote: Remote, folder: Path) -> ReadAhead:
    """What the arm has in front of the store."""
    if arm == "local_copy":
        return LocalCopy(remote, folder)
    caches = {"remote_each_epoch": OneByOne, "ram_cache": RamCache, "read_ahead_16": ReadAhead}
    return caches[arm](remote)


def break_even(
    epoch: Callable[[], None], cache: ReadAhead, without_cache: Callable[[], None]
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
