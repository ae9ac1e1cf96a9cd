"""What scripts that read and write files ask of the page cache and of the disk under a folder."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

CACHESTAT = 451  # cachestat(2), since Linux 6.5; the C library has no function for it yet
PAGE_BYTES = mmap.PAGESIZE
IN_MEMORY = ("tmpfs", "ramfs")
MAP_FAILED = ctypes.c_void_p(-1).value

_c = ctypes.CDLL(None, use_errno=True)
_c.mmap.restype = ctypes.c_void_p
_c.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int64,
)
_c.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_c.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


class CachestatRange(ctypes.Structure):
    """struct cachestat_range of <linux/mman.h>; a length of 0 reaches to the end of the file."""

    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class Cachestat(ctypes.Structure):
    """struct cachestat of <linux/mman.h>, in pages."""

    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")
    )


def resident_share(files: Iterable[str | Path]) -> float | None:
    """The share of the files' pages that the page cache holds; None where the kernel does not
    tell. Nothing is resident of files without pages."""
    pages, resident = 0, 0
    for file in files:
        file_pages = -(-os.stat(file).st_size // PAGE_BYTES)
        found = _with_opened(file, resident_pages)
        if found is None:
            return None
        pages += file_pages
        resident += min(found, file_pages)  # read-ahead may reach beyond the end
    return resident / pages if pages else 0.0


def resident_pages(descriptor: int) -> int | None:
    """Of an open file, by cachestat(2) or else by mincore(2); None where neither tells."""
    found = pages_by_cachestat(descriptor)
    return pages_by_mincore(descriptor) if found is None else found


def pages_by_cachestat(descriptor: int) -> int | None:
    """None before Linux 6.5, and where a container does not allow it."""
    whole, found = CachestatRange(0, 0), Cachestat()
    if _c.syscall(CACHESTAT, descriptor, ctypes.byref(whole), ctypes.byref(found), 0) != 0:
        return None
    return int(found.cached)


def pages_by_mincore(descriptor: int) -> int | None:
    """None for a file of somebody else's that we may not write: of that, Linux calls every page
    resident."""
    status = os.fstat(descriptor)
    writable = os.access(f"/proc/self/fd/{descriptor}", os.W_OK)
    if not writable and status.st_uid != os.geteuid():
        return None
    size = status.st_size
    if size == 0:
        return 0
    address = _c.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    if address == MAP_FAILED:
        return None
    residency = (ctypes.c_ubyte * -(-size // PAGE_BYTES))()
    try:
        if _c.mincore(address, size, residency) != 0:
            return None
    finally:
        _c.munmap(address, size)
    return sum(page & 1 for page in bytes(residency))


def evict(files: Iterable[str | Path]) -> None:
    """Drops the files from the page cache, as far as the kernel does so: a precondition on
    resident_share() tells. What is not yet on the disk would stay. So file systems are written
    where something does, each once: fsync(2) flushes the disk for each file, though it be clean."""
    kept = [file for file in files if not _dropped(file)]
    for file in {os.stat(file).st_dev: file for file in kept}.values():
        _with_opened(file, _c.syncfs)
    for file in kept:
        _dropped(file)


def _dropped(file: str | Path) -> bool:
    """Whether nothing of it is left."""

    def drop(descriptor: int) -> bool:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return resident_pages(descriptor) == 0

    return bool(_with_opened(file, drop))


def _with_opened(file: str | Path, use: Callable[[int], Any]) -> Any:
    """What that says of its descriptor."""
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return use(descriptor)
    finally:
        os.close(descriptor)


def disk_facts(folder: Path, root: Path = Path("/")) -> dict[str, Any]:
    """For the record: file system, whether the disk rotates, and whether there is none. What is
    not known is absent. `root` is where /proc and /sys lie."""
    device, filesystem = _mount_of(folder.resolve(), root / "proc/self/mountinfo")
    facts: dict[str, Any] = {"filesystem": filesystem} if filesystem else {}
    rotational = _is_rotational(root / "sys/dev/block" / device) if device else None
    if rotational is not None:
        facts["rotational"] = rotational
    return {**facts, "in_memory": filesystem in IN_MEMORY}


def _mount_of(folder: Path, mountinfo: Path) -> tuple[str, str]:
    """Device and file system of the innermost mount that holds the folder; of those at one place
    the last, which covers the others."""
    innermost, depth = ("", ""), 0
    try:
        lines = os.fsdecode(mountinfo.read_bytes()).splitlines()
    except OSError:
        return innermost
    for line in lines:  # "36 35 98:0 /in /at rw,noatime shared:1 - ext3 /dev/sda1 rw"
        mount, _, source = line.partition(" - ")
        device, place = mount.split()[2], Path(_unescaped(mount.split()[4]))
        if len(place.parts) >= depth and folder.is_relative_to(place):
            innermost, depth = (device, source.split()[0]), len(place.parts)
    return innermost


def _unescaped(path: str) -> str:
    r"""A path of mountinfo, which writes a space as \040."""
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), path)


def _is_rotational(device: Path) -> bool | None:
    """A partition has no queue of its own, but its disk, in whose folder it lies."""
    for queue in (device / "queue", device / ".." / "queue"):
        try:
            return int((queue / "rotational").read_text(encoding="ascii")) != 0
        except (OSError, ValueError):
            continue
    return None
