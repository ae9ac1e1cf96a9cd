"""ceiling/storage: the disk under the scratch folder, through the page cache and past it."""

from __future__ import annotations

import json
import mmap
import os
import shutil
import statistics
import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from gpulift_files import evict
from gpulift_uring import READ, WRITE, Ring
from gpulift_work.samples import cold, folder_for, note_of_cold
from gpulift_worker import Arm, Skip, scratch

TECHNIQUE = {
    "question": "How fast can this machine read and write files that are not in its memory?",
    "expectation": (
        "A disk of 0.1 ms a request and 1.5 GB/s, as a virtual one. 4 KiB one after another: "
        "4,096 bytes / 0.1 ms = 41 MB/s, buffered the same, since random reads are read ahead of "
        "by nobody; 32 in flight 32 times as much or the disk's limit, some 100,000 requests a "
        "second = 410 MB/s: 10. Threads hand over in Python: 20 us a request, 200 MB/s. 1 MiB in "
        "sequence: 0.1 + 0.7 ms one after another, 1.3 GB/s; buffered 1.2 GB/s by read-ahead, "
        "less the copy; 32 in flight the disk's 1.5 GB/s. Writes count until fdatasync returns: 4 "
        "KiB buffered reach the disk as a queue by themselves, and are 5 times as fast as direct "
        "ones one after another; 1 MiB is at the disk's limit in every way, some 1.1 GB/s. fio, "
        "given the same file, blocks, depth and io_uring, moves as much in a second: within 5 % of "
        "io_uring_direct, whose Python takes 1 to 2 us of each request's 10 or more. A launch's "
        "disk may be twice another's where other machines share it."
    ),
    "predict": [
        "operation:read/access:random_4k: buffered 92.16-112.6 ms, direct 92.16-112.6 ms,"
        " direct_threads 18.43-22.53 ms, io_uring_direct 9.216-11.26 ms",
        "operation:read/access:sequential_1m: buffered 50.33-61.52 ms, direct 46.46-56.78 ms,"
        " direct_threads 40.27-49.21 ms, io_uring_direct 40.27-49.21 ms",
        "operation:write/access:random_4k: direct 0.18-0.22",
        "operation:write/access:sequential_1m: buffered 54.91-67.11 ms, direct 54.91-67.11 ms,"
        " direct_threads 54.91-67.11 ms, io_uring_direct 54.91-67.11 ms",
    ],
    "found": (
        "The disk of that virtual machine is faster than the one that was assumed: 53 us for 4 "
        "KiB, not 100, and 2.5 GB/s of buffered reads, not 1.2. It writes 2.6 to 4.9 GB/s until "
        "fdatasync returns, more than it reads: that the hypervisor's memory takes them is "
        "inferred, not traced. With 32 in flight it does 64,000 requests a second, not 100,000; "
        "why is not known. Three launches read 1 MiB by io_uring at 2.5, 2.2 and 1.4 GB/s. That a "
        "file's place does it was not borne out: on another virtual disk six new files of one or "
        "two extents had 1.5 to 1.8 GB/s in the median of 15 reads, and each of them as wide a "
        "spread by itself. fio reads 1 MiB as fast, within what trials spread, but 4 KiB at random "
        "1.6 to 1.7 times as fast, on two busy cores: until that is settled the roof of small "
        "reads is too low, and rate_over_fio_ratio says by how much on each machine."
    ),
    "ceiling": True,
    "arms": ["buffered", "direct", "direct_threads", "io_uring_direct"],
    "l2": "none",
    "page_cache": "cold",
    "sweep": {"operation": ["read", "write"], "access": ["random_4k", "sequential_1m"]},
    "check": {"meaning": "wrong bytes", "tolerance": 0},
}
FILE_BYTES = 64 << 20
BLOCKS = {"random_4k": (1024, 4 << 10), "sequential_1m": (64, 1 << 20)}  # number and size
DEPTH = 32
FIO_TURNS = 5  # of fio and of this, one after the other, since a shared disk's pace wanders

Transfer = Callable[[int, Any, Any], None]  # of a file's rows of bytes at these offsets


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """Blocks of the case's file, read or overwritten; a write is done when it is on the disk."""
    writes = point["operation"] == "write"
    count, size = BLOCKS[str(point["access"])]
    generator = np.random.default_rng(seed)
    content: Any = np.frombuffer(generator.bytes(FILE_BYTES), np.uint8).reshape(-1, size)
    file = file_of(content)
    places = generator.permutation(len(content))[:count] if count < len(content) else slice(None)
    offsets = np.arange(0, FILE_BYTES, size)[places]
    expected = content[places] ^ 0xFF if writes else content[places].copy()
    rows = np.frombuffer(mmap.mmap(-1, count * size), np.uint8).reshape(count, size)
    rows[:] = expected if writes else 0
    transfer = transfers(arm, writes)
    descriptor = open_file(file, direct=arm != "buffered")

    def step() -> None:
        transfer(descriptor, offsets, rows)
        if writes:
            os.fdatasync(descriptor)

    def error() -> float:
        found = read_back(file, size)[places] if writes else rows
        return float(np.count_nonzero(found != expected))

    def beside_fio() -> dict[str, float]:
        return compared(step, fio_command(program, file, point), file) if program else {}

    program = shutil.which("fio")
    is_fio_like = arm == "io_uring_direct"
    return Arm(
        step=step,
        error=error,
        bytes=count * size,
        roof=f"storage/{point['operation']}",
        metrics=beside_fio if is_fio_like else dict,
        notes={
            "cold": note_of_cold(file.parent),
            "requests": f"{count} of {size >> 10} KiB",
            **({"fio": fio_version(program)} if is_fio_like else {}),
        },
        **cold([file]),
    )


def file_of(content: Any) -> Path:
    """The one file of all arms, so that none has a better place on the disk than another. Its
    blocks stay where they are: each arm finds this content, whatever the one before it wrote."""
    folder = scratch() / "blocks"
    file = folder / "content"
    if not file.exists():
        folder_for(folder.name, FILE_BYTES)
        file.touch()
    with file.open("r+b") as opened:
        opened.write(content)
    return file


def fio_version(program: str | None) -> str:
    """For the record."""
    if program is None:
        return "not installed, so nothing is held against it: install fio"
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return said.stdout.strip()


def fio_command(program: str, file: Path, point: Mapping[str, int | str]) -> list[str]:
    """The same requests, but for the order of random ones."""
    count, size = BLOCKS[str(point["access"])]
    order = "rand" if count * size < FILE_BYTES else ""
    return [
        program,
        "--name=blocks",
        f"--filename={file}",
        f"--rw={order}{point['operation']}",
        f"--bs={size}",
        f"--size={FILE_BYTES}",
        f"--io_size={count * size}",
        f"--iodepth={DEPTH}",
        "--ioengine=io_uring",
        "--direct=1",
        "--end_fsync=1",
        "--allow_file_create=0",
        "--output-format=json",
    ]


def compared(step: Callable[[], None], command: list[str], file: Path) -> dict[str, float]:
    """How long fio needs for the work of a step by its own clock, and this arm beside it."""
    own_s, fio_s = [], []
    for _ in range(FIO_TURNS):
        evict([file])
        start_s = monotonic()
        step()
        own_s.append(monotonic() - start_s)
        evict([file])
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        (job,) = json.loads(said)["jobs"]
        side = max((job["read"], job["write"]), key=lambda one: int(one["io_bytes"]))
        fio_s.append(side["io_bytes"] / side["bw_bytes"])
    return {
        "fio_s": statistics.median(fio_s),
        "rate_over_fio_ratio": statistics.median(fio_s) / statistics.median(own_s),
    }


def open_file(file: Path, *, direct: bool) -> int:
    """Raises Skip where the file system has no O_DIRECT."""
    try:
        return os.open(file, os.O_RDWR | os.O_CLOEXEC | (os.O_DIRECT if direct else 0))
    except OSError as error:
        raise Skip(
            f"the file system has no O_DIRECT: {error.strerror}",
            "name a folder on a local disk: --scratch DIR",
        ) from error


def transfers(arm: str, writes: bool) -> Transfer:
    """How this arm reads or writes rows."""
    if arm == "io_uring_direct":
        ring = Ring(DEPTH)
        opcode = WRITE if writes else READ
        return lambda descriptor, offsets, rows: ring.transfer(opcode, descriptor, offsets, rows)
    one_by_one = write_rows if writes else read_rows
    if arm != "direct_threads":
        return one_by_one
    pool = ThreadPoolExecutor(DEPTH)

    def by_threads(descriptor: int, offsets: Any, rows: Any) -> None:
        shares = [slice(first, None, DEPTH) for first in range(DEPTH)]
        done = pool.map(lambda share: one_by_one(descriptor, offsets[share], rows[share]), shares)
        list(done)

    return by_threads


def read_rows(descriptor: int, offsets: Any, rows: Any) -> None:
    """One after another."""
    for offset, row in zip(offsets.tolist(), rows, strict=True):
        require_whole(os.preadv(descriptor, [row], offset), row, offset)


def write_rows(descriptor: int, offsets: Any, rows: Any) -> None:
    """One after another."""
    for offset, row in zip(offsets.tolist(), rows, strict=True):
        require_whole(os.pwritev(descriptor, [row], offset), row, offset)


def require_whole(moved_bytes: int, row: Any, offset: int) -> None:
    """Raises OSError where a request was cut short."""
    if moved_bytes != len(row):
        raise OSError(f"at byte {offset}: {moved_bytes} of {len(row)} bytes")


def read_back(file: Path, size: int) -> Any:
    """What the disk has."""
    evict([file])
    return np.fromfile(file, np.uint8).reshape(-1, size)
