"""CPU seconds, user and system, of this process and of the processes that it started."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Mapping
from dataclasses import dataclass

TRIES = 3  # to look at processes while none of them ends
CHILDREN_USER, CHILDREN_SYSTEM = 13, 14  # in proc_pid_stat(5), counted from the state
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class CpuMeter:
    """Counts from when it is made, or restarted; what its own looking takes is not in it."""

    def __init__(self) -> None:
        self._others = Others.found()
        self._own_s = time.process_time()

    def restart(self) -> None:
        """Counts from now on. To find all processes takes milliseconds, to ask those again that
        were found before microseconds: only where one of them has ended, all are looked for. A
        process that has begun since then counts with all that it did."""
        self._others = self._others.asked_again() or Others.found()
        self._own_s = time.process_time()

    def used_s(self) -> float:
        """Since then, of all threads, of descendants that live and of those that ended."""
        own_s = time.process_time() - self._own_s
        # A descendant that nobody waits for takes its past along when it ends.
        return own_s + max(0.0, Others.found().used_s - self._others.used_s)


@dataclass(frozen=True)
class Others:
    """All descendants so far."""

    used_s: float
    waited_s: Mapping[int, float]  # of each that lives, what its own ended children had used

    @staticmethod
    def found() -> Others:
        """By looking for them."""
        ended_s = _ended_s()
        living_s, waited_s = 0.0, dict[int, float]()
        for _ in range(TRIES):
            living_s, waited_s = 0.0, {}
            for process in _descendants() if _has_children() else []:
                living_s += _clock_s(process) or 0.0
                waited_s[process] = _waited_s(process)
            now_ended_s = _ended_s()
            if now_ended_s == ended_s:
                break
            ended_s = now_ended_s  # one ended meanwhile, and may have been counted with the living
        return Others(living_s + sum(waited_s.values()) + ended_s, waited_s)

    def asked_again(self) -> Others | None:
        """The same processes later; None where one has ended."""
        ended_s = _ended_s()
        living_s = 0.0
        for process in self.waited_s:
            if (process_s := _clock_s(process)) is None:
                return None
            living_s += process_s
        return Others(living_s + sum(self.waited_s.values()) + ended_s, self.waited_s)


def _ended_s() -> float:
    """Of the children that were waited for, and of theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _has_children() -> bool:
    """Looking at every thread's children takes milliseconds, and most arms have none."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _descendants() -> list[int]:
    family = [os.getpid()]
    for process in family:  # it grows meanwhile
        # One whose thread has just ended is listed under another, too.
        family += sorted(set(_children(process)).difference(family))
    return family[1:]


def _children(process: int) -> list[int]:
    """Linux lists them by the thread that started them."""
    children: list[int] = []
    with contextlib.suppress(OSError):  # it has ended
        for thread in os.listdir(f"/proc/{process}/task"):
            with (
                contextlib.suppress(OSError),
                open(f"/proc/{process}/task/{thread}/children", encoding="ascii") as listed,
            ):
                children += map(int, listed.read().split())
    return children


def _clock_s(process: int) -> float | None:
    """Of another process; None where it has ended."""
    try:
        return time.clock_gettime(~process << 3 | 2)  # clock_getcpuclockid(3)
    except OSError:
        return None


def _waited_s(process: int) -> float:
    """Of the children that another process has waited for; 0 where it has ended."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as status:
            fields = status.read().rpartition(")")[2].split()  # the name before may hold anything
    except OSError:
        return 0.0
    return (int(fields[CHILDREN_USER]) + int(fields[CHILDREN_SYSTEM])) / TICKS_PER_S
