"""A job: a process and all that it starts. It is read, never stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from gpulift.errors import GpuliftError

PROC = Path("/proc")
CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")
NANO = 1e-9
SIGNAL_EXIT = 128  # as shells add it to the number of the signal that ended a program


@dataclass(frozen=True)
class Reading:
    """Since the job began, as far as the kernel tells; of processes that ended and were waited
    for, too."""

    time_s: float
    cpu_s: float
    processes: int
    threads: int
    memory_bytes: int  # resident; pages that processes share count for each of them
    cpu_wait_s: float | None  # ready, but no processor was free; all threads together
    first_run_s: float | None  # the first process' main thread: on a processor, and waiting for one
    first_wait_s: float | None
    disk_bytes: tuple[int, int] | None  # read from and written to disks
    file_bytes: tuple[int, int] | None  # the same with the page cache, pipes and sockets


class Job:
    """A process of this machine."""

    def __init__(self, root: psutil.Process) -> None:
        self._root = root
        self._waits = _ThreadWaits()

    @property
    def pid(self) -> int:
        """Of its first process."""
        return self._root.pid

    def has_ended(self) -> bool:
        """Whether its first process has."""
        try:
            return not self._root.is_running() or self._root.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    def send(self, signal_number: int) -> None:
        """A signal that only the watch got is not passed on to a job of somebody else."""

    def exit_code(self) -> int | None:
        """Nobody but the parent of a process learns it."""
        return None

    @property
    def ours(self) -> bool:
        """Whether it was started here, so that its end and its code are ours to wait for."""
        return False

    def cores(self) -> float:
        """Processors that it may use."""
        try:
            allowed = float(len(self._root.cpu_affinity()))
        except (psutil.Error, OSError):
            allowed = float(os.cpu_count() or 1)
        return min(allowed, cgroup_cores())

    def reading(self) -> Reading:
        """What the job has used until now; what ended meanwhile is left out."""
        tree = [self._root]
        with suppress(psutil.Error):
            tree += self._root.children(recursive=True)
        found = [one for one in map(_of_process, tree) if one is not None]
        first = _schedule(PROC / str(self.pid) / "schedstat")
        return Reading(
            time_s=time.monotonic(),
            cpu_s=sum(one.cpu_s for one in found),
            processes=len(found),
            threads=sum(one.threads for one in found),
            memory_bytes=sum(one.memory_bytes for one in found),
            cpu_wait_s=self._waits.add([one.pid for one in found]),
            first_run_s=None if first is None else first[0],
            first_wait_s=None if first is None else first[1],
            disk_bytes=_pair(found, lambda one: one.disk_bytes),
            file_bytes=_pair(found, lambda one: one.file_bytes),
        )


def attached(pid: int) -> Job:
    """A job of somebody else; raises GpuliftError where there is none."""
    try:
        job = Job(psutil.Process(pid))
    except (psutil.Error, ValueError):
        ended = True
    else:
        ended = job.has_ended()
    if ended:
        raise GpuliftError(f"--pid {pid}: there is no such process")
    return job


class StartedJob(Job):
    """One that the watch starts; the terminal's Ctrl-C reaches it without help."""

    def __init__(
        self,
        command: Sequence[str],
        stdout: int | None = None,
        stderr: int | None = None,
        environment: Mapping[str, str] | None = None,
        mask: Collection[int] = (),
    ) -> None:
        """With the environment and the signal mask that it would have without a watch."""
        try:
            self._process = subprocess.Popen(
                command,
                stdout=stdout,
                stderr=stderr,
                env=environment,
                preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, mask),
            )
        except OSError as error:
            raise GpuliftError(f"{command[0]}: cannot be started: {error.strerror}") from None
        super().__init__(psutil.Process(self._process.pid))

    @property
    def ours(self) -> bool:
        return True

    def has_ended(self) -> bool:
        """It is not waited for yet, so that its last counts can be read."""
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.pid, flags) is not None

    def send(self, signal_number: int) -> None:
        """A signal that only the watch got."""
        self._process.send_signal(signal_number)

    def exit_code(self) -> int | None:
        """Waits for its end."""
        code = self._process.wait()
        return SIGNAL_EXIT - code if code < 0 else code


@dataclass(frozen=True)
class _Process:
    pid: int
    cpu_s: float
    threads: int
    memory_bytes: int
    disk_bytes: tuple[int, int] | None
    file_bytes: tuple[int, int] | None


def _of_process(process: psutil.Process) -> _Process | None:
    """Its own and what its ended children used; None of one that is gone."""
    try:
        with process.oneshot():
            cpu = process.cpu_times()
            threads = process.num_threads()
            memory_bytes = process.memory_info().rss
    except psutil.Error:
        return None
    disk_bytes = file_bytes = None
    with suppress(psutil.Error, OSError):  # of another user's job it is not told
        io: Any = process.io_counters()
        disk_bytes = (io.read_bytes, io.write_bytes)
        file_bytes = (io.read_chars, io.write_chars)
    cpu_s = cpu.user + cpu.system + cpu.children_user + cpu.children_system
    return _Process(process.pid, cpu_s, threads, memory_bytes, disk_bytes, file_bytes)


def _pair(
    found: Sequence[_Process], of: Callable[[_Process], tuple[int, int] | None]
) -> tuple[int, int] | None:
    """Of all processes together; None where any does not tell."""
    each = [of(one) for one in found]
    known = [one for one in each if one is not None]
    if not known or len(known) < len(each):
        return None
    return sum(one[0] for one in known), sum(one[1] for one in known)


def _schedule(file: Path) -> tuple[float, float] | None:
    """Seconds of a thread on a processor, and ready but waiting for one."""
    try:
        run, wait = file.read_text(encoding="ascii").split()[:2]
    except (OSError, ValueError):
        return None
    return int(run) * NANO, int(wait) * NANO


class _ThreadWaits:
    """Seconds for which threads waited for a processor; those of threads that ended are kept."""

    def __init__(self) -> None:
        self._seen: Mapping[tuple[int, str], float] = {}
        self._sum_s = 0.0

    def add(self, pids: Sequence[int]) -> float | None:
        now: dict[tuple[int, str], float] = {}
        for pid in pids:
            with suppress(OSError):
                for thread in os.listdir(PROC / str(pid) / "task"):
                    found = _schedule(PROC / str(pid) / "task" / thread / "schedstat")
                    if found is not None:
                        now[pid, thread] = found[1]
        if not now and not self._seen:
            return None
        self._sum_s += sum(wait - self._seen.get(key, 0.0) for key, wait in now.items())
        self._seen = now
        return self._sum_s


def cgroup_cores() -> float:
    """Processors that the container's quota allows; infinite without one."""
    try:
        quota, period = CPU_LIMIT.read_text(encoding="ascii").split()
        return int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return float("inf")
