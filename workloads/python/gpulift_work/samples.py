"""Samples on a disk for Python arms: the forms in which loaders find them, and how they are cold.

Every form gives the same samples in the same order. One that is read from front to end has been
written in this order, as a shuffle ahead of the training does; the others have their samples by
number and look each one up.
"""

from __future__ import annotations

import importlib
import io
import itertools
import os
import shutil
import tarfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from gpulift_files import disk_facts, evict, resident_share
from gpulift_worker import NAME_A_DISK, Precondition, Skip, scratch

ANOTHER_DISK = "free some space, or name another disk: --scratch DIR"
COLD_SHARE = 0.01  # that may still be in memory
SHARD_BYTES = 16 << 20
STREAM_BYTES = 256 << 10  # that a reader from front to end asks for at once
BLOCK = 512  # of a tar archive
READ_AHEADS = 64  # of the disk, which samples are at least, or one would bring many of them
THREADS = 8
WINDOW = 2  # parts of an order for each thread, which are read or ready
PART = 32  # samples of an order that a thread reads at once: handing over takes as long as a file
SHUFFLED_SHARDS, SHUFFLED_SAMPLES = 100, 1000  # as WebDataset's own guide has them
LEAST_MAP_BYTES = 1 << 20
TOLD_REMEDY = "use Linux 6.5 or newer where cachestat is allowed, or files of your own"

Sample = Any  # whatever holds bytes: bytes, a memoryview, a row of an array


def seeded_samples(count: int, size: int, seed: int) -> Any:
    """Bytes that no compression makes smaller, a sample in each row."""
    content = np.random.default_rng(seed).bytes(count * size)
    return np.frombuffer(content, np.uint8).reshape(count, size)


def shuffled(count: int, seed: int) -> list[int]:
    """The samples' numbers in the order of an epoch."""
    order: list[int] = np.random.default_rng([seed, count]).permutation(count).tolist()
    return order


def folder_for(name: str, needed_bytes: float, remedy: str = "") -> Path:
    """An empty folder of this name on a disk that has the space. Raises Skip without one."""
    folder = scratch()
    if disk_facts(folder)["in_memory"]:
        raise Skip("the scratch folder is in memory", NAME_A_DISK)
    own = folder / name
    shutil.rmtree(own, ignore_errors=True)
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < needed_bytes:
        raise Skip(
            f"the files need {needed_bytes / 1e6:.0f} MB, and the disk of the scratch folder has "
            f"{free_bytes / 1e6:.0f} MB free",
            remedy or ANOTHER_DISK,
        )
    own.mkdir()
    return own


def cold(files: Sequence[Path]) -> dict[str, Any]:
    """What an arm says that reads these files, none of which is in memory when a window begins."""
    return {
        "before": lambda: evict(files),
        "precondition": Precondition(
            "resident_share", lambda: resident_share(files), COLD_SHARE, TOLD_REMEDY
        ),
    }


def warm(files: Sequence[Path]) -> dict[str, Any]:
    """What an arm says that reads these files, all of which are in memory when a window begins."""

    def read() -> None:
        for file in files:
            file.read_bytes()

    def absent_share() -> float | None:
        share = resident_share(files)
        return None if share is None else 1 - share

    return {
        "before": read,
        "precondition": Precondition("absent_share", absent_share, COLD_SHARE, TOLD_REMEDY),
    }


def note_of_cold(folder: Path) -> str:
    """For the record: how cold that is, and how far ahead the system reads."""
    kibibytes = read_ahead_kib(folder)
    ahead = "not known" if kibibytes is None else f"{kibibytes} KiB"
    return f"cold in this machine: file contents, not names; read-ahead {ahead}"


def read_ahead_kib(folder: Path) -> int | None:
    """Of the disk under it; None where the kernel does not tell, as of some file systems."""
    device = os.stat(folder).st_dev
    queue = Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb")
    try:
        return int(queue.read_text(encoding="ascii"))
    except OSError:
        return None


def require_read_aheads(folder: Path, size: int, remedy: str) -> None:
    """Raises Skip where the samples of a cold case are too few bytes for this disk's read-ahead."""
    kibibytes = read_ahead_kib(folder)
    if kibibytes is None:
        raise Skip("the read-ahead of the scratch folder's disk cannot be told", NAME_A_DISK)
    if size < READ_AHEADS * kibibytes << 10:
        raise Skip(
            f"{size >> 20} MiB are less than {READ_AHEADS} times what the disk reads ahead, "
            f"{kibibytes} KiB",
            remedy,
        )


class Store:
    """Samples in one form, in an order that was given when it was written."""

    files: Sequence[Path] = ()  # all that hold samples
    versions: Mapping[str, str] = {}  # of the package that reads them
    order: Sequence[int] = ()  # of the samples that read() gave last
    shuffle = "all samples, anew"  # what an epoch's order can be drawn from

    def read(self) -> Iterator[Sample]:
        """Opens what it needs and closes it again; a sample may be gone when the next one comes."""
        raise NotImplementedError


class SingleFiles(Store):
    """A file a sample."""

    def __init__(self, folder: Path, samples: Sequence[Sample], order: Sequence[int]) -> None:
        self.files = [folder / f"{number:06}.bin" for number in range(len(samples))]
        for file, sample in zip(self.files, samples, strict=True):
            file.write_bytes(sample)
        self.order = order

    def read(self) -> Iterator[Sample]:
        """One after another."""
        return map(self._read_one, self.order)

    def _read_one(self, number: int) -> Sample:
        """As a data set does: open, read, close."""
        with open(self.files[number], "rb") as file:
            return file.read()


class ThreadedFiles(SingleFiles):
    """The same, read ahead by 8 threads."""

    def read(self) -> Iterator[Sample]:
        """In their order, as a loader of threads hands them on."""
        parts = (self.order[start : start + PART] for start in range(0, len(self.order), PART))
        with ThreadPoolExecutor(THREADS) as pool:

            def asked(count: int) -> list[Future[list[Sample]]]:
                return [
                    pool.submit(self._read_part, part) for part in itertools.islice(parts, count)
                ]

            waiting = deque(asked(WINDOW * THREADS))
            while waiting:
                yield from waiting.popleft().result()
                waiting.extend(asked(1))

    def _read_part(self, numbers: Sequence[int]) -> list[Sample]:
        return [self._read_one(number) for number in numbers]


class TarShards:
    """Archives of some 16 MiB, to be read from front to end."""

    def __init__(
        self,
        folder: Path,
        samples: Sequence[Sample],
        order: Sequence[int],
        shard_bytes: int = SHARD_BYTES,
    ) -> None:
        self.files: list[Path] = []
        for numbers in in_shards(samples, order, shard_bytes):
            self.files.append(folder / f"{len(self.files):06}.tar")
            with tarfile.open(self.files[-1], "w", format=tarfile.USTAR_FORMAT) as archive:
                for number in numbers:
                    member = tarfile.TarInfo(f"{number:06}.bin")
                    member.size = len(samples[number])
                    archive.addfile(member, io.BytesIO(samples[number]))


def in_shards(
    samples: Sequence[Sample], order: Sequence[int], shard_bytes: int
) -> list[Sequence[int]]:
    """The order in parts, whose samples have about this many bytes."""
    total_bytes = sum(map(len, samples))
    shards = max(1, round(total_bytes / shard_bytes))
    starts = [len(order) * shard // shards for shard in range(shards + 1)]
    return [order[begin:end] for begin, end in itertools.pairwise(starts)]


def tar_members(file: BinaryIO) -> Iterator[tuple[str, Sample]]:
    """Names and contents of an archive with short names. Raises ValueError where it is cut off."""
    name = "its beginning"
    while True:
        header = file.read(BLOCK)
        if len(header) < BLOCK:
            raise ValueError(f"the tar archive is truncated behind {name}")
        if header[0] == 0:
            return
        name = header[:100].rstrip(b"\0").decode()
        size = int(header[124:136].rstrip(b"\0 "), 8)
        content = file.read(size + -size % BLOCK)
        if len(content) < size:
            raise ValueError(f"sample {name} is truncated: {len(content)} of {size} bytes")
        yield name, memoryview(content)[:size]


class WebDataset(Store):
    """Such archives by the package of that name, in this process."""

    shuffle = f"the shards, and {SHUFFLED_SAMPLES} samples that follow each other, anew"

    def __init__(self, folder: Path, samples: Sequence[Sample], order: Sequence[int]) -> None:
        package = importlib.import_module("webdataset")
        self.versions = {"webdataset": package.__version__}
        self.files = TarShards(folder, samples, order).files
        shards = package.WebDataset(list(map(str, self.files)), shardshuffle=SHUFFLED_SHARDS)
        self._samples = shards.shuffle(SHUFFLED_SAMPLES)

    def read(self) -> Iterator[Sample]:
        """In an order of its own in each epoch."""
        self.order = order = []
        for sample in self._samples:
            order.append(int(sample["__key__"]))
            yield sample["bin"]


class Pack(Store):
    """One file and an index in memory: each sample is read where it lies."""

    def __init__(self, folder: Path, samples: Sequence[Sample], order: Sequence[int]) -> None:
        self.files = [folder / "samples.pack"]
        self.order = order
        self._sizes = list(map(len, samples))
        self._offsets = [0, *np.cumsum(self._sizes).tolist()]
        with open(self.files[0], "wb") as file:
            for sample in samples:
                file.write(sample)

    def place(self, number: int) -> tuple[int, int]:
        """Size and offset of a sample."""
        return self._sizes[number], self._offsets[number]

    def read(self) -> Iterator[Sample]:
        """In the order of the epoch, which is random in the file."""
        with open(self.files[0], "rb", buffering=0) as file:
            for number in self.order:
                yield read_whole(file.fileno(), *self.place(number), f"sample {number}")


class SequentialPack(Pack):
    """The same, written in the order of the epoch and read from front to end."""

    shuffle = "all samples, once, when they were written"

    def __init__(self, folder: Path, samples: Sequence[Sample], order: Sequence[int]) -> None:
        super().__init__(folder, [samples[number] for number in order], range(len(order)))
        self.order = order

    def read(self) -> Iterator[Sample]:
        """By few large requests."""
        with open(self.files[0], "rb", buffering=STREAM_BYTES) as file:
            for place, number in enumerate(self.order):
                size, _ = self.place(place)
                sample = file.read(size)
                if len(sample) < size:
                    raise ValueError(f"sample {number} is truncated: {len(sample)} of {size} bytes")
                yield sample


def read_whole(descriptor: int, size: int, offset: int, name: str) -> bytes:
    """Raises ValueError where the file ends before that."""
    content = os.pread(descriptor, size, offset)
    if len(content) < size:
        raise ValueError(f"{name} is truncated: {len(content)} of {size} bytes")
    return content


class Lmdb(Store):
    """A database of LMDB's, which maps it: a sample's bytes are touched where they are used.
    Without read-ahead, as its manual advises for what is read at random."""

    def __init__(
        self,
        folder: Path,
        samples: Sequence[Sample],
        order: Sequence[int],
        map_bytes: int | None = None,
    ) -> None:
        self._lmdb = lmdb = importlib.import_module("lmdb")
        self.versions = {"lmdb": lmdb.__version__}
        self.files = [folder / "samples.lmdb"]
        self.order = order
        # Values share no pages: one of 4 KiB takes two of them.
        space = map_bytes or LEAST_MAP_BYTES + 3 * sum(map(len, samples))
        with (
            lmdb.open(str(self.files[0]), map_size=space, subdir=False, lock=False) as database,
            database.begin(write=True) as transaction,
        ):
            for number, sample in enumerate(samples):
                try:
                    transaction.put(b"%06d" % number, memoryview(sample))
                except lmdb.MapFullError as error:
                    raise ValueError(
                        f"LMDB's map of {space / 1e6:.1f} MB is full at sample {number} of "
                        f"{len(samples)}: make map_bytes larger"
                    ) from error

    def read(self) -> Iterator[Sample]:
        """Opened for each epoch: what is mapped cannot be put out of memory."""
        with (
            self._lmdb.open(
                str(self.files[0]), subdir=False, readonly=True, lock=False, readahead=False
            ) as database,
            database.begin(buffers=True) as transaction,
        ):
            for number in self.order:
                yield transaction.get(b"%06d" % number)


FORMS: Mapping[str, Callable[[Path, Sequence[Sample], Sequence[int]], Store]] = {
    "files": SingleFiles,
    "files_8_threads": ThreadedFiles,
    "pack": Pack,
    "pack_sequential": SequentialPack,
    "lmdb": Lmdb,
    "webdataset": WebDataset,
}


def sample_store(form: str, folder: Path, samples: Sequence[Sample], order: Sequence[int]) -> Store:
    """The samples in a form, to be read in this order. Raises ModuleNotFoundError where its package
    is missing, which skips the arm."""
    return FORMS[form](folder, samples, order)


class Batch:
    """Where an epoch's samples go, one after another, as a loader collates them."""

    def __init__(self, count: int, size: int) -> None:
        self.rows = np.zeros((count, size), np.uint8)

    def fill(self, samples: Iterator[Sample]) -> None:
        """Copies each into its place. Raises ValueError where there are too few or too many."""
        for row, sample in zip(self.rows, samples, strict=True):
            row[:] = np.frombuffer(sample, np.uint8)

    def wrong_bytes(
        self, samples: Any, order: Sequence[int], wanted: Sequence[int] | None = None
    ) -> float:
        """Of samples in this order; then all are forgotten. Raises RuntimeError where the order has
        not each of those that were wanted, or of all, once."""
        if sorted(order) != sorted(range(len(samples)) if wanted is None else wanted):
            raise RuntimeError("a sample is missing, or came twice")
        wrong = sum(
            int(np.count_nonzero(row != samples[number]))
            for row, number in zip(self.rows, order, strict=True)
        )
        self.rows.fill(0)
        return float(wrong)
