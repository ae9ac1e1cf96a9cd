"""input/sharding: how the readers of a data set share it out among themselves."""

from __future__ import annotations

import ctypes
import io
import mmap
import multiprocessing
import signal
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from gpulift_work.samples import (
    Pack,
    Sample,
    TarShards,
    cold,
    folder_for,
    note_of_cold,
    read_whole,
    seeded_samples,
    tar_members,
)
from gpulift_worker import DIE_WITH_PARENT, Arm, Skip

TECHNIQUE = {
    "question": "What does it cost that each of n readers reads everything and skips the others' "
    "samples, or asks for its own one by one, where it could have shards of its own?",
    "expectation": """
        33 MB, of which each of n readers needs 1 / n: who scans reads 33 MB each, who has an
        index or shards of its own 33 / n. From an S3 server on the loopback s3fs reads shards of
        4 MiB at 400 MB/s, 83 / n ms, where each reader has a core. A scan takes as long however
        many there are: 1, 0.5 and 0.25 of their speed. An index asks for each sample: 288 / n
        requests of 1.6 ms, 460 / n ms, 0.18, and 1.3 with 16 in flight, 0.22, since a reader's
        requests all take their turn on one core. On one cold disk of 1.5 GB/s the page cache
        reads once for all: 25 ms for a scan, to which each further reader adds 5 ms of copies,
        and 22 for shards: 1.0, 0.91, 0.77; an index asks at random, 120 us a sample, 35 ms by one
        reader, 0.7, and at the disk's rate by four, 1.0.
    """,
    "predict": [
        "readers:1/store:s3: contiguous_shards 60-120 ms, scan_and_skip 0.9-1.1",
        "store:s3: strided_index 0.14-0.25",
        "store:s3_16_in_flight: strided_index 0.16-0.3",
        "readers:2/store:s3: scan_and_skip 0.45-0.55",
        "readers:4/store:s3: scan_and_skip 0.225-0.275",
        "readers:1/store:cold_disk: strided_index 0.63-0.77, scan_and_skip 0.9-1.1",
        "readers:4/store:cold_disk: strided_index 0.9-1.1, scan_and_skip 0.693-0.847",
        "readers:2/store:cold_disk: scan_and_skip 0.819-1.001",
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
    "sweep": {"readers": [1, 2, 4], "store": ["cold_disk", "s3", "s3_16_in_flight"]},
    "check": {"meaning": "wrong bytes, where each sample comes once", "tolerance": 0},
}
COUNT, SIZE = 288, 112 << 10
SHARD_BYTES = 4 << 20
SHARDS = 8  # of all samples: whoever comes ninth has none
REQUEST_BYTES = 1 << 20  # of a reader from front to end
IN_FLIGHT = {"s3": 1, "s3_16_in_flight": 16}
BUCKET = "samples"


class Reader:
    """One of n, which reads a local store or the same files as objects."""

    def __init__(self, store: Pack | TarShards, rank: int, readers: int) -> None:
        self._store = store
        self._rank = rank
        self._readers = readers

    def scan_and_skip(self) -> Iterator[tuple[int, Sample]]:
        """Everything, of which every n-th sample is kept."""
        for place, member in enumerate(self._members(self._store.files)):
            if place % self._readers == self._rank:
                yield member

    def contiguous_shards(self) -> Iterator[tuple[int, Sample]]:
        """Every n-th shard from front to end."""
        return self._members(self._store.files[self._rank :: self._readers])

    def strided_index(self) -> Iterator[tuple[int, Sample]]:
        """Every n-th sample by the index, which is shuffled."""
        assert isinstance(self._store, Pack)
        return self._samples(self._store, self._store.order[self._rank :: self._readers])

    def _members(self, shards: Sequence[Path]) -> Iterator[tuple[int, Sample]]:
        for file in self._opened(shards):
            with file:
                for name, sample in tar_members(file):
                    yield int(name.partition(".")[0]), sample

    def _opened(self, shards: Sequence[Path]) -> Iterator[Any]:
        return (open(shard, "rb", buffering=REQUEST_BYTES) for shard in shards)

    def _samples(self, pack: Pack, numbers: Sequence[int]) -> Iterator[tuple[int, Sample]]:
        with open(pack.files[0], "rb", buffering=0) as file:
            for number in numbers:
                sample = read_whole(file.fileno(), *pack.place(number), f"sample {number}")
                yield number, sample


class RemoteReader(Reader):
    """Whole shards, or a part of the pack for each sample, so many requests at once."""

    def __init__(
        self, store: Pack | TarShards, rank: int, readers: int, server: Any, in_flight: int
    ) -> None:
        super().__init__(store, rank, readers)
        self._server = server
        self._in_flight = in_flight

    @cached_property
    def _objects(self) -> Any:
        """Of the process that reads: connections do not live through a fork."""
        return self._server.files(self._in_flight, max_concurrency=1)

    def _opened(self, shards: Sequence[Path]) -> Iterator[Any]:
        for start in range(0, len(shards), self._in_flight):
            names = [f"{BUCKET}/{one.name}" for one in shards[start : start + self._in_flight]]
            found = self._objects.cat(names)
            yield from (io.BytesIO(found[name]) for name in names)

    def _samples(self, pack: Pack, numbers: Sequence[int]) -> Iterator[tuple[int, Sample]]:
        from gpulift_work.object_store import parts_of  # a large package

        name = f"{BUCKET}/{pack.files[0].name}"
        places = list(map(pack.place, numbers))
        return zip(numbers, parts_of(self._objects, name, places), strict=True)


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """In a step the readers, processes as a loader's are, deliver all samples between them."""
    readers = int(point["readers"])
    if readers > SHARDS:
        raise Skip(f"{SHARDS} shards are too few for {readers} readers", "take fewer readers")
    folder = folder_for(arm, 4.0 * COUNT * SIZE)  # all arms' samples are there at once
    bucket = folder / "store" / BUCKET
    bucket.mkdir(parents=True)
    samples = seeded_samples(COUNT, SIZE, seed)
    order = np.random.default_rng(seed).permutation(COUNT).tolist()
    store: Pack | TarShards = Pack(bucket, samples, order)
    if arm != "strided_index":
        store = TarShards(bucket, samples, order, SHARD_BYTES)
    said: dict[str, Any] = {"roof": "storage/read", "notes": {"cold": note_of_cold(folder)}}
    if point["store"] == "cold_disk":
        said |= cold(store.files)
        here = [Reader(store, rank, readers) for rank in range(readers)]
    else:
        from gpulift_work.object_store import ObjectStore  # a large package

        server = ObjectStore(bucket.parent)
        said = {"notes": server.notes, "versions": server.versions}
        of = (server, IN_FLIGHT[str(point["store"])])
        here = [RemoteReader(store, rank, readers, *of) for rank in range(readers)]
    delivery = Delivery(arm, here)
    return Arm(
        step=delivery.step,
        error=lambda: delivery.error(seeded_samples(COUNT, SIZE, seed)),
        items=COUNT,
        item="sample",
        bytes=COUNT * SIZE,
        **said,
    )


def shared(*shape: int, of: Any) -> Any:
    """An array of zeros that forked processes have in common."""
    size = int(np.prod(shape)) * np.dtype(of).itemsize
    return np.frombuffer(mmap.mmap(-1, size), of).reshape(shape)


class Delivery:
    """All readers at once, and what they brought."""

    def __init__(self, arm: str, readers: Sequence[Reader]) -> None:
        self._rows = shared(COUNT, SIZE, of=np.uint8)
        self._readers = readers
        self._times = shared(len(readers), COUNT, of=np.int64)
        context = multiprocessing.get_context("fork")
        self._lines = []
        self.processes = []
        for rank, reader in enumerate(readers):
            ours, theirs = context.Pipe()
            self._lines.append(ours)
            parts = (getattr(reader, arm), self._times[rank], theirs)
            self.processes.append(context.Process(target=self._serve, args=parts, daemon=True))
            self.processes[-1].start()
            theirs.close()  # so that its end is seen here

    def step(self) -> None:
        """Returns when the slowest is done. Raises RuntimeError where one could not."""
        self._times.fill(0)
        for line in self._lines:
            line.send(True)
        failed = [said for line in self._lines if (said := line.recv())]
        if failed:
            raise RuntimeError(failed[0])

    def _serve(self, samples: Any, times: Any, line: Any) -> None:
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
        while line.recv():
            said = ""
            try:
                for number, sample in samples():
                    self._rows[number] = np.frombuffer(sample, np.uint8)
                    times[number] += 1
            except Exception as error:
                said = str(error)
            line.send(said)

    def error(self, samples: Any) -> float:
        """Raises RuntimeError where a sample is missing or came twice."""
        times = self._times.sum(axis=0)
        wrong = np.flatnonzero(times != 1)
        if len(wrong):
            raise RuntimeError(f"sample {wrong[0]} came {times[wrong[0]]} times")
        return float(np.count_nonzero(self._rows != samples))
