"""Instructions of a run and of all that it starts, by a counter of the processor:
perf_event_open(2)."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gpulift.gate.metrics import INSTRUCTIONS, NoNumberError
from gpulift.ground.errors import GpuliftError

CALLS = {"x86_64": 298, "aarch64": 241}
HARDWARE, INSTRUCTIONS_RETIRED = 0, 1  # type and config
SIZE = 64  # of the attributes' first version
TIMES = 1 | 2  # read_format: how long it was on, and how long it counted
# disabled, inherit, exclude_kernel, exclude_hv, enable_on_exec: what is started counts, from its
# exec on, in user mode, which kernel.perf_event_paranoid = 2 lets everybody count.
FLAGS = 1 | 1 << 1 | 1 << 5 | 1 << 6 | 1 << 12
CLOEXEC = 8
PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
LEAST_PARANOID = 2


@contextmanager
def counting(wanted: bool = True) -> Iterator[Callable[[], float]]:
    """What this thread starts inside is counted by what is yielded; 0 where it is not `wanted`.
    Raises GpuliftError where nothing can be counted here."""
    if not wanted:
        yield lambda: 0.0
        return
    counter = _opened()
    try:
        yield lambda: read(counter)
    finally:
        os.close(counter)


def _opened() -> int:
    words = (HARDWARE, SIZE, INSTRUCTIONS_RETIRED, 0, 0, TIMES, FLAGS)
    asked = struct.pack("IIQQQQQ", *words).ljust(SIZE, b"\0")
    itself, any_cpu, no_group = (ctypes.c_long(number) for number in (0, -1, -1))
    call = CALLS.get(platform.machine())
    if call is None:
        raise _refused("it is not known how to count on this processor")
    libc = ctypes.CDLL(None, use_errno=True)
    at = (itself, any_cpu, no_group, ctypes.c_long(CLOEXEC))
    counter = int(libc.syscall(ctypes.c_long(call), asked, *at))
    if counter < 0:
        raise refusal(ctypes.get_errno())
    return counter


def refusal(error: int) -> GpuliftError:
    """Why this error number of the call came, and what to do."""
    if error not in (errno.EACCES, errno.EPERM):
        return _refused("this machine has no counter of them, as most virtual ones")
    try:
        paranoid = int(PARANOID.read_text("ascii"))
    except (OSError, ValueError):
        paranoid = 0
    if paranoid > LEAST_PARANOID:
        remedy = f"sudo sysctl kernel.perf_event_paranoid={LEAST_PARANOID} allows it"
        return _refused(
            f"the kernel forbids it (kernel.perf_event_paranoid is {paranoid}): {remedy}"
        )
    return _refused("this container forbids it: --cap-add PERFMON allows it")


def _refused(why: str) -> GpuliftError:
    return GpuliftError(f"--metric {INSTRUCTIONS}: {why}; or take --metric cpu")


def read(counter: int) -> float:
    """The count so far. Raises NoNumberError where it is of a part alone."""
    count, on_ns, counted_ns = struct.unpack("QQQ", os.read(counter, 24))
    if counted_ns < on_ns:
        part = f"{100 * counted_ns / on_ns:.0f} %"
        raise NoNumberError(
            f"{INSTRUCTIONS}: counted for {part} of the run, as another program counts, too"
        )
    return float(count)
