"""input/read_path: ways to ask the system for the parts of one large file."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gpulift_uring import READ, Ring
from gpulift_work.samples import cold, folder_for, note_of_cold, seeded_samples
from gpulift_worker import Arm, Skip

TECHNIQUE = {
    "question": "Which way of reading a large file is the fastest, and which takes the least CPU?",
    "expectation": (
        "112 KiB at random, cold, of a disk with 40 us a request and 1.5 GB/s: pread 40 + 76 us "
        "and 10 us to copy, 0.9 GB/s. 16 asked for ahead (willneed) or 32 in flight (io_uring) "
        "hide the 40 us: 1.4 GB/s, 1.6; past the cache nothing is copied and no page is made: 1.7 "
        "with a fifth of the CPU time. O_DIRECT one after another 40 + 76 us: 1.1. A map reads as "
        "much around a fault as the disk reads ahead: 1.2 where that is 112 KiB, less where it is "
        "more than is wanted. 1 MiB in sequence: read-ahead keeps pread at the disk's rate, all "
        "1.0 to 1.2. Warm, pread copies at 10 GB/s; a map faults in 16 pages at once, 0.5 us each "
        "of them: 0.7; io_uring 1.0; O_DIRECT goes to the disk: 0.1, and 0.15 with 32 in flight."
    ),
    "predict": [
        "access:random_112k/cache:cold: pread 50.4-61.6 ms, mmap 1.08-1.32, willneed 1.44-1.76,"
        " o_direct 0.99-1.21, io_uring_buffered 1.44-1.76, io_uring_direct 1.53-1.87",
        "access:sequential_1m/cache:cold: mmap 1-1.2, willneed 1-1.2, o_direct 1-1.2,"
        " io_uring_buffered 1-1.2, io_uring_direct 1-1.2",
        "cache:warm: mmap 0.63-0.77, io_uring_buffered 0.9-1.1, o_direct 0.09-0.11,"
        " io_uring_direct 0.135-0.165",
    ],
    "found": (
        "Cold in sequence willneed has 0.55: pread reaches 2.7 GB/s by the system's read-ahead of "
        "8 MiB, and asked for in parts of 1 MiB the disk gives 1.5 to 1.7. Warm, a map has 1.1 and "
        "1.0: 112 KiB take it 6.2 us with all faults, and pread 6.9 for the copy alone. Why is not "
        "known of either. Cold at random, beside an H200, pread takes 157 to 185 us a block and "
        "O_DIRECT 85 to 112: 1.7 to 2.2 in three launches. That is not known, either."
    ),
    "arms": ["pread", "mmap", "willneed", "o_direct", "io_uring_buffered", "io_uring_direct"],
    "l2": "none",
    "page_cache": "by_case",
    "sweep": {"access": ["random_112k", "sequential_1m"], "cache": ["cold", "warm"]},
    "check": {"meaning": "wrong bytes", "tolerance": 0},
}
BLOCKS = {"random_112k": (448, 112 << 10), "sequential_1m": (48, 1 << 20)}  # number and size
AHEAD = 16
DEPTH = 32

Reading = Callable[[], None]


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A step opens the file, reads every block once into its row, and closes it."""
    count, size = BLOCKS[str(point["access"])]
    folder = folder_for(arm, 7.0 * count * size)  # all arms' files are there at once
    content = seeded_samples(count, size, seed)
    file = folder / "content"
    file.write_bytes(content)
    with_file(file, 0, os.fsync)  # else the system writes it while O_DIRECT reads
    in_sequence = point["access"] == "sequential_1m"
    places = np.arange(count)
    if not in_sequence:
        places = np.random.default_rng(seed).permutation(count)
    rows = np.frombuffer(mmap.mmap(-1, count * size), np.uint8).reshape(count, size)
    rows.fill(0)
    is_cold = point["cache"] == "cold"

    def error() -> float:
        return float(np.count_nonzero(rows != seeded_samples(count, size, seed)[places]))

    return Arm(
        step=reading(arm, file, places * size, rows),
        error=error,
        bytes=count * size,
        roof="storage/read" if is_cold else "",
        notes={"cold": note_of_cold(folder)} if is_cold else {},
        **(cold([file]) if is_cold else {}),
    )


def reading(arm: str, file: Path, offsets: Any, rows: Any) -> Reading:
    """How this arm fills the rows from these offsets. Raises Skip where the system cannot."""
    flags = os.O_DIRECT if arm in ("o_direct", "io_uring_direct") else 0
    require_flags(file, flags)
    if arm.startswith("io_uring"):
        ring = Ring(DEPTH)
        return lambda: with_file(
            file, flags, lambda opened: ring.transfer(READ, opened, offsets, rows)
        )
    ways = {"mmap": by_map, "willneed": asked_ahead}
    way = ways.get(arm, one_by_one)
    return lambda: with_file(file, flags, lambda opened: way(opened, offsets.tolist(), rows))


def require_flags(file: Path, flags: int) -> None:
    """Raises Skip where the file system has no O_DIRECT."""
    try:
        with_file(file, flags, lambda _: None)
    except OSError as error:
        raise Skip(
            f"the file system has no O_DIRECT: {error.strerror}",
            "name a folder on a local disk: --scratch DIR",
        ) from error


def with_file(file: Path, flags: int, use: Callable[[int], None]) -> None:
    """Opens it for this alone."""
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        use(descriptor)
    finally:
        os.close(descriptor)


def one_by_one(descriptor: int, offsets: list[int], rows: Any) -> None:
    """A call for each, which waits."""
    for offset, row in zip(offsets, rows, strict=True):
        read_row(descriptor, row, offset)


def asked_ahead(descriptor: int, offsets: list[int], rows: Any) -> None:
    """The system is told early, and reads in the background."""
    size = rows.shape[1]
    for offset in offsets[:AHEAD]:
        os.posix_fadvise(descriptor, offset, size, os.POSIX_FADV_WILLNEED)
    for place, (offset, row) in enumerate(zip(offsets, rows, strict=True)):
        if place + AHEAD < len(offsets):
            later = offsets[place + AHEAD]
            os.posix_fadvise(descriptor, later, size, os.POSIX_FADV_WILLNEED)
        read_row(descriptor, row, offset)


def by_map(descriptor: int, offsets: list[int], rows: Any) -> None:
    """Copied out of a map; each page is faulted in."""
    with mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) as mapped:
        for offset, row in zip(offsets, rows, strict=True):
            row[:] = np.frombuffer(mapped, np.uint8, len(row), offset)


def read_row(descriptor: int, row: Any, offset: int) -> None:
    """Raises OSError where the file ends before that."""
    count = os.preadv(descriptor, [row], offset)
    if count != len(row):
        raise OSError(f"at byte {offset}: {count} of {len(row)} bytes")
