"""input/sharding: how the readers of a data set share it out among themselves."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from gpulift_work.samples import (
    Pack,
    Sample,
    Store,
    TarShards,
    ThrottledFile,
    ThrottledReader,
    cold,
    folder_for,
    note_of_cold,
    seeded_samples,
    tar_members,
)
from gpulift_worker import Arm

TECHNIQUE = {
    "question": "What does it cost that each of n readers reads everything and skips the others' "
    "samples, or asks for its own one by one, where it could have shards of its own?",
    "expectation": (
        "33 MB, of which each of n readers needs 1 / n: who scans reads 33 MB each, who has an "
        "index or shards of its own 33 / n. Readers with a link each of 200 MB/s and 1 ms a "
        "request: a scan in requests of 1 MiB takes 32 x (1 + 5.2) = 199 ms however many readers "
        "there are, shards of their own 199 / n: a scan has 1, 0.5 and 0.25 of their speed. An "
        "index asks for each sample: 288 / n x (1 + 0.57 + 0.1) = 481 / n ms: 0.41, so that it is "
        "worse than the scan until there are more readers than the ratio of the times. On one cold "
        "disk of 1.5 GB/s the page cache reads once for all: 25 ms for a scan, to which each "
        "further reader adds 5 ms of copies, and 22 for shards: 1.0, 0.91, 0.77; an index asks at "
        "random, 120 us a sample, 35 ms by one reader, 0.7, and at the disk's rate by four, 1.0."
    ),
    "predict": [
        {
            "case": {"readers": 1, "store": "emulated_200MB_s"},
            "step_time_s": {"contiguous_shards": [0.1791, 0.2189]},
            "speedup": {"scan_and_skip": [0.9, 1.1]},
        },
        {"case": {"store": "emulated_200MB_s"}, "speedup": {"strided_index": [0.369, 0.451]}},
        {
            "case": {"readers": 2, "store": "emulated_200MB_s"},
            "speedup": {"scan_and_skip": [0.45, 0.55]},
        },
        {
            "case": {"readers": 4, "store": "emulated_200MB_s"},
            "speedup": {"scan_and_skip": [0.225, 0.275]},
        },
        {
            "case": {"readers": 1, "store": "cold_disk"},
            "speedup": {"strided_index": [0.63, 0.77], "scan_and_skip": [0.9, 1.1]},
        },
        {
            "case": {"readers": 4, "store": "cold_disk"},
            "speedup": {"strided_index": [0.9, 1.1], "scan_and_skip": [0.693, 0.847]},
        },
        {
            "case": {"readers": 2, "store": "cold_disk"},
            "speedup": {"scan_and_skip": [0.819, 1.001]},
        },
    ],
    "found": (
        "On the cold disk the index has 0.46 by one reader and 0.67 by four. A sample at random "
        "takes it 204 to 229 us where 120 were estimated, and four readers at once get 1.1 GB/s, "
        "where shards of their own get 1.6. Why is not known; input/read_path takes 130 to 150 us "
        "for as much of the same disk."
    ),
    "claims": ["dataset-sharding-faster"],
    "arms": ["contiguous_shards", "strided_index", "scan_and_skip"],
    "controls": ["scan_and_skip"],
    "l2": "none",
    "page_cache": "by_case",
    "sweep": {"readers": [1, 2, 4], "store": ["cold_disk", "emulated_200MB_s"]},
    "check": {"meaning": "wrong bytes, where each sample comes once", "tolerance": 0},
}
COUNT, SIZE = 288, 112 << 10
SHARD_BYTES = 4 << 20  # 8 shards
REQUEST_BYTES = 1 << 20  # of a reader from front to end
BYTES_PER_S, LATENCY_S = 2e8, 1e-3


class Reader:
    """One of n readers, with the link to the store that is its own."""

    def __init__(self, store: Store, link: ThrottledReader, rank: int, readers: int) -> None:
        self._store = store
        self._link = link
        self._rank = rank
        self._readers = readers

    def scan(self) -> Iterator[tuple[int, Sample]]:
        """Everything, of which every n-th sample is kept."""
        members = (member for shard in self._store.files for member in self._stream(shard))
        for place, member in enumerate(members):
            if place % self._readers == self._rank:
                yield member

    def own_shards(self) -> Iterator[tuple[int, Sample]]:
        """Every n-th shard from front to end."""
        for shard in self._store.files[self._rank :: self._readers]:
            yield from self._stream(shard)

    def strided(self) -> Iterator[tuple[int, Sample]]:
        """Every n-th sample by the index, which is shuffled."""
        assert isinstance(self._store, Pack)
        with open(self._store.files[0], "rb", buffering=0) as file:
            for number in self._store.order[self._rank :: self._readers]:
                yield number, self._link.read(file.fileno(), *self._store.place(number))

    def _stream(self, shard: Path) -> Iterator[tuple[int, Sample]]:
        with io.BufferedReader(ThrottledFile(self._link, shard), REQUEST_BYTES) as file:
            for name, sample in tar_members(file):
                yield int(name.partition(".")[0]), sample


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """In a step the readers, threads here, deliver all samples between them."""
    readers = int(point["readers"])
    emulated = point["store"] != "cold_disk"
    folder = folder_for(arm, 4.0 * COUNT * SIZE)  # all arms' samples are there at once
    samples = seeded_samples(COUNT, SIZE, seed)
    order = np.random.default_rng(seed).permutation(COUNT).tolist()
    store: Store = Pack(folder, samples, order)
    if arm != "strided_index":
        store = TarShards(folder, samples, order, SHARD_BYTES)
    rate, latency_s = (BYTES_PER_S, LATENCY_S) if emulated else (math.inf, 0.0)
    links = [ThrottledReader(rate, latency_s) for _ in range(readers)]
    delivery = Delivery(arm, store, links)

    def metrics() -> dict[str, float]:
        before_bytes = [link.bytes_read for link in links]
        delivery.step()
        read = [link.bytes_read - was for link, was in zip(links, before_bytes, strict=True)]
        return {"most_bytes_read_by_a_reader_bytes": float(max(read))}

    notes = {"load": f"emulated: a link of {BYTES_PER_S / 1e6:g} MB/s and 1 ms for each reader"}
    if not emulated:
        notes = {"cold": note_of_cold(folder)}
    return Arm(
        step=delivery.step,
        error=lambda: delivery.error(seeded_samples(COUNT, SIZE, seed)),
        items=COUNT,
        item="sample",
        bytes=COUNT * SIZE,
        roof="" if emulated else "storage/read",
        metrics=metrics,
        notes=notes,
        **({} if emulated else cold(store.files)),
    )


class Delivery:
    """All readers at once, and what they brought."""

    def __init__(self, arm: str, store: Store, links: list[ThrottledReader]) -> None:
        ways: Mapping[str, Callable[[Reader], Iterator[tuple[int, Sample]]]] = {
            "scan_and_skip": Reader.scan,
            "strided_index": Reader.strided,
            "contiguous_shards": Reader.own_shards,
        }
        self._way = ways[arm]
        self._readers = [Reader(store, link, rank, len(links)) for rank, link in enumerate(links)]
        self._threads = ThreadPoolExecutor(len(links))
        self._rows: Any = np.zeros((COUNT, SIZE), np.uint8)
        self._times = np.zeros(COUNT, np.int64)

    def step(self) -> None:
        """Returns when the slowest is done."""
        self._times.fill(0)
        list(self._threads.map(self._deliver, self._readers))

    def _deliver(self, reader: Reader) -> None:
        for number, sample in self._way(reader):
            self._rows[number] = np.frombuffer(sample, np.uint8)
            self._times[number] += 1

    def error(self, samples: Any) -> float:
        """Raises RuntimeError where a sample is missing or came twice."""
        wrong = np.flatnonzero(self._times != 1)
        if len(wrong):
            raise RuntimeError(f"sample {wrong[0]} came {self._times[wrong[0]]} times")
        return float(np.count_nonzero(self._rows != samples))
