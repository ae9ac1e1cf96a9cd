"""Signals that wait until they are asked for: none may end this process before its children."""

from __future__ import annotations

import os
import signal
from types import FrameType

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT)  # by keys
SENT_BY_KERNEL = 0x80  # SI_KERNEL of Linux: the terminal sent it to the whole foreground group


class Signals:
    """While it is entered, what would end this process is kept, and so is the end of a child."""

    def __init__(self, *more: signal.Signals) -> None:
        # Those that are ignored already, as with nohup, stay so, for the job as well.
        wanted = (*FORWARDED, *more)
        self._kept = [one for one in wanted if signal.getsignal(one) != signal.SIG_IGN]
        self._waited = {*self._kept, signal.SIGCHLD}
        self._noted: list[int] = []
        self.mask_before: set[int] = set()

    def __enter__(self) -> Signals:
        self.mask_before = set(signal.pthread_sigmask(signal.SIG_BLOCK, self._waited))
        # Threads of libraries block nothing: what comes while this one is busy, they get.
        self._old = {one: signal.signal(one, self._note) for one in self._kept}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)
        self.restore_mask()

    def wait(self, limit_s: float) -> tuple[int, bool] | None:
        """One that came until the limit, and whether a terminal sent it to its whole foreground
        group, children included. None where none came, or only the end of a child."""
        if self._noted:
            number = self._noted.pop(0)  # of a thread's, who sent it is not told
            return number, number in FROM_TERMINAL and _is_in_foreground()
        info = signal.sigtimedwait(self._waited, limit_s)
        if info is None or info.si_signo == signal.SIGCHLD:
            return None
        return info.si_signo, info.si_code == SENT_BY_KERNEL

    def restore_mask(self) -> None:
        """In a child, before its program begins."""
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask_before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._noted.append(number)


def _is_in_foreground() -> bool:
    """Whether a Ctrl-C on a terminal reaches this process and its job."""
    try:
        with open("/dev/tty", encoding="ascii") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False
