"""A process that runs: what it says meanwhile, and its end with that of all that it started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from gpulift.ground.entry import tell
from gpulift.ground.errors import GpuliftError
from gpulift.ground.programs import text_of
from gpulift.ground.signals import Signals
from gpulift.ground.text import visible

POLL_S = 0.1
ENDS_WITHIN_S = 5.0  # of its last message, or of being asked to


class Tail:
    """The lines of a file that is still written."""

    def __init__(self, file: Path) -> None:
        self._file, self._at = file, 0

    def lines(self) -> list[str]:
        """Whole ones that it had not the last time."""
        try:
            with self._file.open("rb") as opened:
                opened.seek(self._at)
                content = opened.read()
        except FileNotFoundError:
            return []
        whole = content[: content.rfind(b"\n") + 1]
        self._at += len(whole)
        return text_of(whole).splitlines()


class Hearing:
    """What the probe says, as it says it."""

    def __init__(
        self, said: Path, on_phase: Callable[[str], None], on: Mapping[str, Callable[[], None]]
    ) -> None:
        self._tail, self._on_phase, self._on = Tail(said), on_phase, on
        self.heard_s = time.monotonic()
        self.ended = False
        self.phase = ""

    def listen(self) -> None:
        """Raises GpuliftError of ranks that cannot be followed."""
        for line in self._tail.lines():
            self.heard_s = time.monotonic()
            message = _object(line)
            kind = message.get("say")
            if kind == "phase":
                self.phase = str(message.get("text"))
                self._on_phase(self.phase)
            elif kind == "hello" and message.get("refused"):
                raise GpuliftError(visible(f"the command: {message['refused']}"))
            elif kind == "end":
                self.ended = True
            self._on.get(str(kind), lambda: None)()


def _object(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:  # which is told where all is read
        return {}
    return found if isinstance(found, dict) else {}


class Following:
    """A process until its end. One that `goes_on` behind the last message is never stopped for its
    silence, and gets the first signal that would interrupt us: it may save itself."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        signals: Signals,
        hearing: Hearing,
        silence_s: float,
        goes_on: bool,
        shown: Sequence[Tail],
    ) -> None:
        self._process, self._signals, self._hearing = process, signals, hearing
        self._silence_s, self._goes_on, self._shown = silence_s, goes_on, shown
        self.interrupted = False

    def to_end(self) -> str:
        """Why it has to be stopped; empty where it ended by itself."""
        while not self._has_ended():
            came = self._signals.wait(POLL_S)
            self.listen()
            if came is not None and self._is_over(came[0]):
                return "interrupted"
            silent_s = time.monotonic() - self._hearing.heard_s
            if self._goes_on:
                continue
            if self._hearing.ended and silent_s > ENDS_WITHIN_S:
                return "it goes on behind its last message"
            if silent_s > self._silence_s:
                return f"it said nothing for {self._silence_s:g} s"
        return ""

    def listen(self) -> None:
        """What was said and shown since."""
        self._hearing.listen()
        for tail in self._shown:
            for line in tail.lines():
                tell(line)

    def end(self) -> None:
        """Of what is left of it: at once where it has ended by itself, else after it was asked."""
        family = []
        if not self._has_ended():
            family = _descendants(self._process.pid)
            self._send(signal.SIGTERM)
            until_s = time.monotonic() + ENDS_WITHIN_S
            while time.monotonic() < until_s and not self._has_ended():
                time.sleep(POLL_S / 10)
        self._send(signal.SIGKILL)
        for one in family:
            with suppress(psutil.Error):
                one.kill()
        self._process.wait()

    def _has_ended(self) -> bool:
        """It is not waited for: its number is given to no other yet."""
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._process.pid, flags) is not None

    def _is_over(self, number: int) -> bool:
        again, self.interrupted = self.interrupted, True
        if self._goes_on and not again:
            self._send(number)
            return False
        return True

    def _send(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def _descendants(pid: int) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return psutil.Process(pid).children(recursive=True)
    return []
