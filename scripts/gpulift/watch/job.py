"""A job: a process and all that it starts, also what leaves it to run on as a daemon. It is read,
never stopped."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from gpulift.ground.errors import GpuliftError

PROC = Path("/proc")
CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")
NANO = 1e-9
FORK_BYTES = 1 << 20  # that a fork takes at most before its program begins
TRIES = 3  # to read all processes of a job before any of them ends
CPUCLOCK_SCHED = 2  # of Linux' posix-timers.h: with a process' number the clock of its CPU time
PR_SET_CHILD_SUBREAPER = 36  # of <sys/prctl.h>
SIGNAL_EXIT = 128  # as shells add it to the number of the signal that ended a program


@dataclass(frozen=True)
class Reading:
    """Since the job began, as far as the kernel tells; of processes that ended and were waited
    for, too. CPU time was read in the `took_s` before `time_s`."""

    time_s: float
    took_s: float
    cpu_s: float
    processes: int  # that run; what has ended is in all else
    threads: int
    memory_bytes: int  # resident; pages that processes share count for each of them; 0: not told
    peak_bytes: int  # the most that one process was seen to have had, at any time
    peak_limit_bytes: int  # 0, or where that is not the end's: the most that it can have been
    cpu_wait_s: float | None  # ready, but no processor was free; all threads together
    first_run_s: float | None  # the first process' main thread: on a processor, and waiting for one
    first_wait_s: float | None
    disk_bytes: tuple[int, int] | None  # read from and written to disks
    file_bytes: tuple[int, int] | None  # the same with the page cache, pipes and sockets


class Job:
    """A process of this machine."""

    def __init__(self, root: psutil.Process) -> None:
        self._root = root
        self._members = [root]
        self._before: Reading | None = None
        self._peak_bytes = self._peak_limit_bytes = 0
        self._waits = _ThreadWaits()

    @property
    def pid(self) -> int:
        """Of its first process."""
        return self._root.pid

    def has_ended(self) -> bool:
        """Whether its first process has, with all its threads."""
        status = _status(PROC / str(self.pid)) if self._root.is_running() else None
        return status is None or (status.is_zombie and status.threads <= 1)

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

    def beginning(self) -> Reading | None:
        """What it had used when it began, where the watch saw that."""
        return None

    def reading(self) -> Reading:
        """What the job has used until now; what ended meanwhile is left out.

        What a process used goes to its parent when it is waited for, and parents are read first: if
        that happens in between it is in neither. Then all are read again; and where processes end
        too often for that, no sum is below that of the reading before.
        """
        for _ in range(TRIES):
            self._members = self._family()
            began_s = time.monotonic()
            used = [_cpu_s(one) for one in self._members]
            time_s = time.monotonic()
            if None not in used:
                break
        found = [_of_process(*both) for both in zip(self._members, used, strict=True)]
        told = self._sum(time_s, time_s - began_s, [one for one in found if one is not None])
        if None in found and self._before is not None:
            told = _at_least(told, self._before)
        self._before = told
        return told

    def _family(self) -> list[psutil.Process]:
        """The first process and what descends from it, parents first; also of those that were seen
        and have another parent now."""
        found = dict.fromkeys([self._root, *_descendants(self._root)])
        for one in self._members:
            if one not in found and one.is_running():
                found |= dict.fromkeys([one, *_descendants(one)])
        return list(found)

    def _sum(self, time_s: float, took_s: float, found: Sequence[_Process]) -> Reading:
        running = [one for one in found if one.runs]
        first = self._first_thread()
        self._peak_bytes = max([self._peak_bytes, *(one.peak_bytes for one in running)])
        return Reading(
            time_s,
            took_s,
            cpu_s=sum(one.cpu_s for one in found),
            processes=len(running),
            threads=sum(one.threads for one in running),
            memory_bytes=sum(one.memory_bytes for one in running),
            peak_bytes=self._peak_bytes,
            peak_limit_bytes=self._peak_limit_bytes,
            cpu_wait_s=self._waits.add([one.pid for one in found]),
            first_run_s=None if first is None else first[0],
            first_wait_s=None if first is None else first[1],
            disk_bytes=_pair(found, lambda one: one.disk_bytes),
            file_bytes=_pair(found, lambda one: one.file_bytes),
        )

    def _first_thread(self) -> tuple[float, float] | None:
        """What it took; None of one that ended before others of its process."""
        status = _status(PROC / str(self.pid))
        if status is None or (status.is_zombie and status.threads > 1):
            return None
        return _schedule(PROC / str(self.pid) / "schedstat")


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []


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
    """One that the watch starts; the terminal's Ctrl-C reaches it without help. What loses its
    parent becomes a child of the watch, which waits for it when it ends, as init would."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        mask: Collection[int] = (),
        files: Collection[int] = (),
    ) -> None:
        """With the environment, the signal mask and the open files that it would have without a
        watch."""
        self._others = set(_descendants(psutil.Process()))  # a shell that exec'd us may have some
        self._ended = _Process(0)
        self._is_over = False
        self._code: int | None = None
        _adopt_orphans(True)
        # The kernel takes that for the least peak of a process that was forked from this one.
        self._own_peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        self._began_s = time.monotonic()
        try:
            self._process = subprocess.Popen(
                command,
                env=environment,
                pass_fds=files,
                preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, mask),
            )
        except OSError as error:
            raise GpuliftError(f"{command[0]}: cannot be started: {error.strerror}") from None
        super().__init__(psutil.Process(self._process.pid))

    @property
    def ours(self) -> bool:
        return True

    def _family(self) -> list[psutil.Process]:
        return [one for one in _descendants(psutil.Process()) if one not in self._others]

    def beginning(self) -> Reading:
        none = (0, 0)
        return Reading(self._began_s, 0.0, 0.0, 0, 0, 0, 0, 0, 0.0, 0.0, 0.0, none, none)

    def _sum(self, time_s: float, took_s: float, found: Sequence[_Process]) -> Reading:
        told = super()._sum(time_s, took_s, [*found, self._ended])
        ended = [one for one in found if not one.runs and (one.pid != self.pid or self._is_over)]
        more_s = sum(map(self._wait_for, ended))
        return replace(
            told,
            cpu_s=told.cpu_s + more_s,
            peak_bytes=self._peak_bytes,
            peak_limit_bytes=self._peak_limit_bytes,
        )

    def _wait_for(self, ended: _Process) -> float:
        """If it is a child of the watch. What it used stays a part of the job's; the seconds of CPU
        time that its parent alone learns of."""
        try:
            pid, status, used = os.wait4(ended.pid, os.WNOHANG)
        except ChildProcessError:
            return 0.0
        if not pid:
            return 0.0
        peak_bytes = used.ru_maxrss << 10
        if pid == self.pid:
            self._code = os.waitstatus_to_exitcode(status)
        if pid == self.pid and peak_bytes <= self._own_peak_bytes + FORK_BYTES:
            self._peak_limit_bytes = peak_bytes
        else:
            self._peak_bytes = max(self._peak_bytes, peak_bytes)
        used_s, before = used.ru_utime + used.ru_stime, self._ended
        self._ended = _Process(
            0,
            cpu_s=before.cpu_s + used_s,
            disk_bytes=_added(before.disk_bytes, ended.disk_bytes),
            file_bytes=_added(before.file_bytes, ended.file_bytes),
        )
        return used_s - ended.cpu_s

    def has_ended(self) -> bool:
        """The reading after that is the last, and waits for it."""
        if not self._is_over:
            flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
            self._is_over = os.waitid(os.P_PID, self.pid, flags) is not None
        return self._is_over

    def send(self, signal_number: int) -> None:
        """A signal that only the watch got; of a job that sudo started the sender is refused."""
        with suppress(PermissionError):
            os.kill(self.pid, signal_number)

    def exit_code(self) -> int | None:
        """Waits for its end."""
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self._process.returncode = self._code
        _adopt_orphans(False)
        return SIGNAL_EXIT - self._code if self._code < 0 else self._code


def _adopt_orphans(adopts: bool) -> None:
    """Whether descendants of this process whose parents end become its children, in place of
    init's."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(adopts), 0, 0, 0)


@dataclass(frozen=True)
class _Process:
    pid: int
    runs: bool = False
    cpu_s: float = 0.0
    threads: int = 0
    memory_bytes: int = 0
    peak_bytes: int = 0
    disk_bytes: tuple[int, int] | None = (0, 0)
    file_bytes: tuple[int, int] | None = (0, 0)


def _cpu_s(process: psutil.Process) -> float | None:
    """Its own and what its ended children used; None of one that is gone. The second is told in
    ticks of the clock, the first, on Linux proper, is not."""
    own_s = None
    with suppress(OSError):
        own_s = time.clock_gettime((~process.pid << 3) | CPUCLOCK_SCHED)
    try:
        told = process.cpu_times()
    except psutil.Error:
        return None
    own_s = told.user + told.system if own_s is None else own_s
    return own_s + told.children_user + told.children_system


def _of_process(process: psutil.Process, cpu_s: float | None) -> _Process | None:
    """What it has besides; None of one that is gone."""
    status = _status(PROC / str(process.pid))
    if cpu_s is None or status is None:
        return None
    disk_bytes = file_bytes = None
    with suppress(psutil.Error, OSError):  # of another user's job it is not told
        io: Any = process.io_counters()
        disk_bytes = (io.read_bytes, io.write_bytes)
        file_bytes = (io.read_chars, io.write_chars)
    if not status.memory_bytes:
        status = _status_of_threads(process.pid) or status
    return _Process(
        process.pid,
        not status.is_zombie or status.threads > 1,
        cpu_s,
        status.threads,
        status.memory_bytes,
        status.peak_bytes,
        disk_bytes,
        file_bytes,
    )


@dataclass(frozen=True)
class _Status:
    is_zombie: bool
    threads: int
    memory_bytes: int
    peak_bytes: int


def _status(folder: Path) -> _Status | None:
    """Of a process or thread; None of one that is gone."""
    try:
        lines = (folder / "status").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    told = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
    memory, peak = (int(told.get(name, ["0"])[0]) << 10 for name in ("VmRSS", "VmHWM"))
    return _Status(told["State"][0] == "Z", int(told["Threads"][0]), memory, peak)


def _status_of_threads(pid: int) -> _Status | None:
    """Of a process whose first thread has ended: of the others the kernel tells its memory."""
    each = (_status(PROC / str(pid) / "task" / thread) for thread in _threads(pid))
    return next((one for one in each if one is not None and one.memory_bytes), None)


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(PROC / str(pid) / "task")
    except OSError:
        return []


def _pair(
    found: Sequence[_Process], of: Callable[[_Process], tuple[int, int] | None]
) -> tuple[int, int] | None:
    """Of all processes together; None where any does not tell."""
    each = [of(one) for one in found]
    known = [one for one in each if one is not None]
    if not known or len(known) < len(each):
        return None
    return sum(one[0] for one in known), sum(one[1] for one in known)


def _added(one: tuple[int, int] | None, other: tuple[int, int] | None) -> tuple[int, int] | None:
    return None if one is None or other is None else (one[0] + other[0], one[1] + other[1])


def _at_least(told: Reading, before: Reading) -> Reading:
    return replace(
        told,
        cpu_s=max(told.cpu_s, before.cpu_s),
        disk_bytes=_most(told.disk_bytes, before.disk_bytes),
        file_bytes=_most(told.file_bytes, before.file_bytes),
    )


def _most(one: tuple[int, int] | None, other: tuple[int, int] | None) -> tuple[int, int] | None:
    return None if one is None or other is None else (max(one[0], other[0]), max(one[1], other[1]))


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
            for thread in _threads(pid):
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
