"""Which malloc a process has, its settings where they must not move, and the page faults of steps.

glibc's thresholds follow what is freed. So it depends on blocks of long ago whether those of a step
are new pages or old ones, and launches of one arm differ by up to twice.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

EXPORTED = {"tcmalloc": "tc_version", "jemalloc": "mallctl", "mimalloc": "mi_version"}
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # of <malloc.h>
MMAP_BYTES = 32 << 20  # to which glibc's own threshold rises in the end
ARENAS_PER_CORE = 8  # which glibc has if not told otherwise
WARM_UP_STEPS = 30  # in which the heap grows, with up to ten steps in between that find room
COUNTED_STEPS = 5
MINOR_FAULTS = 7  # in proc_pid_stat(5), counted from the state


def allocator() -> str:
    """Of the library that malloc is of, which only that one exports."""
    program = ctypes.CDLL(None)
    return next((name for name, sign in EXPORTED.items() if hasattr(program, sign)), "glibc")


def fix_malloc() -> Mapping[str, str]:
    """Gives glibc's the settings that its own reach in the end; for the record, what they are."""
    name, version = platform.libc_ver()
    if allocator() != "glibc" or name != "glibc":
        other = allocator() if name == "glibc" else "the C library's"
        return {"malloc": f"{other}, with settings of its own"}
    arenas = ARENAS_PER_CORE * (os.cpu_count() or 1)
    settings = {
        "M_MMAP_THRESHOLD": (M_MMAP_THRESHOLD, MMAP_BYTES),
        "M_TRIM_THRESHOLD": (M_TRIM_THRESHOLD, 2 * MMAP_BYTES),
        "M_ARENA_MAX": (M_ARENA_MAX, arenas),
    }
    for said, (setting, value) in settings.items():
        if ctypes.CDLL(None).mallopt(setting, value) != 1:
            raise RuntimeError(f"mallopt() refuses {said}={value}")
    values = (f"{said}={value}" for said, (_, value) in settings.items())
    return {"malloc": f"glibc {version}, {', '.join(values)}"}


def faults_per_step(step: Callable[[], object]) -> float:
    """Page faults of this process, once its heap has grown."""
    for _ in range(WARM_UP_STEPS):
        step()
    before = page_faults()
    for _ in range(COUNTED_STEPS):
        step()
    return (page_faults() - before) / COUNTED_STEPS


def page_faults() -> int:
    """Of all threads so far, without those that waited for a disk."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def page_faults_of(processes: Iterable[int]) -> int:
    """The same of others."""
    states = (Path(f"/proc/{one}/stat").read_text(encoding="ascii") for one in processes)
    return sum(int(state.rpartition(")")[2].split()[MINOR_FAULTS]) for state in states)
