"""Processes beside an arm that keep cores busy while they are told to."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
from collections.abc import Callable

from gpulift_work.loaders import end_with_parent

Work = Callable[[], object]


class Neighbours:
    """So many, each at the same work over and over, stopped until they are told to go on.

    They are forks: to be made before this process has threads or a GPU. They end with it.
    """

    def __init__(self, count: int, work: Callable[[int], Work], *, nice: int = 0) -> None:
        """`work(number)` is called in each process, and makes what it does."""
        context = multiprocessing.get_context("fork")
        arguments = (end_with_parent(os.getpid()), work, nice)
        self._processes = [
            context.Process(target=be_busy, args=(*arguments, number)) for number in range(count)
        ]
        self._busy = False
        atexit.register(self.end)  # ahead of multiprocessing's, which waits for what is stopped
        for process in self._processes:
            process.start()
        self._await_stop()

    def resume(self) -> None:
        """All are busy from now on."""
        if not self._busy:
            self._signal(signal.SIGCONT)
            self._busy = True

    def pause(self) -> None:
        """None takes a core any more."""
        if self._busy:
            self._signal(signal.SIGSTOP)
            self._await_stop()
            self._busy = False

    def end(self) -> None:
        """Of all of them."""
        for process in self._processes:
            process.kill()
            process.join()

    @property
    def pids(self) -> list[int]:
        """Of the processes."""
        return [process.pid for process in self._processes if process.pid is not None]

    def _signal(self, what: signal.Signals) -> None:
        for pid in self.pids:
            os.kill(pid, what)

    def _await_stop(self) -> None:
        for pid in self.pids:
            state = os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED)
            if state is None or state.si_code != os.CLD_STOPPED:
                raise RuntimeError("a process that keeps a core busy ended")


def be_busy(
    end_with_parent: Callable[[int], None], work: Callable[[int], Work], nice: int, number: int
) -> None:
    """What each process does."""
    end_with_parent(number)
    os.nice(nice)
    do = work(number)
    os.kill(os.getpid(), signal.SIGSTOP)
    while True:
        do()
