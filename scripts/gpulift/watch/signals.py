"""Signals of the watch, which wait until they are asked for: none may end it before its job."""

from __future__ import annotations

import os
import signal
from types import FrameType, TracebackType

from gpulift.machine import FORWARDED, SENT_BY_KERNEL


class Signals:
    """While it is entered, what would end the watch is kept, and so is the end of a child."""

    def __init__(self) -> None:
        # Those that are ignored already, as with nohup, stay so, for the job as well.
        self._kept = [one for one in FORWARDED if signal.getsignal(one) != signal.SIG_IGN]
        self._waited = {*self._kept, signal.SIGCHLD}
        self._noted: list[int] = []
        self.mask_before: set[int] = set()

    def __enter__(self) -> Signals:
        self.mask_before = set(signal.pthread_sigmask(signal.SIG_BLOCK, self._waited))
        # Threads of libraries block nothing: what comes while this one is busy, they get.
        self._old = {one: signal.signal(one, self._note) for one in self._kept}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask_before)

    def wait(self, limit_s: float) -> tuple[int, bool] | None:
        """One that came until the limit, and whether a terminal sent it to its whole foreground
        group, the job included. None where none came, or only the end of a child."""
        if self._noted:
            number = self._noted.pop(0)  # of a thread's, who sent it is not told
            return number, number == signal.SIGINT and _is_in_foreground()
        info = signal.sigtimedwait(self._waited, limit_s)
        if info is None or info.si_signo == signal.SIGCHLD:
            return None
        return info.si_signo, info.si_code == SENT_BY_KERNEL

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._noted.append(number)


def _is_in_foreground() -> bool:
    """Whether a Ctrl-C on a terminal reaches this process and its job."""
    try:
        with open("/dev/tty", encoding="ascii") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False
