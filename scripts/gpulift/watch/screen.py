"""Where a person looks: a view that refreshes on a terminal, else lines. Both on stderr, since the
job's own output has stdout."""

from __future__ import annotations

import fcntl
import math
import os
import sys
import termios
import threading
from collections.abc import Sequence
from contextlib import suppress

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gpulift.entry import say
from gpulift.watch import words
from gpulift.watch.cards import Card
from gpulift.watch.samples import Sample

LINE_EVERY_S = 10.0
CHUNK_BYTES = 1 << 16
LAST_WORDS_S = 1.0  # for what the job wrote when it ended; its children may keep the terminal open
WINDOW = bytes(8)  # struct winsize


class Lines:
    """A line at the first sample, then one after every ten seconds."""

    def __init__(self, cores: float, cards: Sequence[Card]) -> None:
        self._cores = cores
        self._cards = cards
        self._shown_s = -math.inf

    def show(self, sample: Sample) -> None:
        """The newest sample, where it is time to."""
        if sample.time_s - self._shown_s >= LINE_EVERY_S:
            self._shown_s = sample.time_s
            say(words.line(sample, self._cores, self._cards))

    def close(self) -> None:
        """Lines stay."""


class View:
    """A table below the job's output, which is printed above it."""

    def __init__(self, cores: float, cards: Sequence[Card], relay: Relay | None) -> None:
        self._cores = cores
        self._cards = cards
        self._relay = relay
        self._console = Console(stderr=True, highlight=False, emoji=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()
        if relay is not None:
            relay.start(self._console)

    def show(self, sample: Sample) -> None:
        """The newest sample in place of the one before."""
        made = Table(box=None, pad_edge=False, show_header=False, title_justify="left")
        made.title = f"{sample.time_s:.0f} s"
        made.add_column(style="bold")
        made.add_column()
        for name, seen in words.rows(sample, self._cores, self._cards):
            made.add_row(Text(name), Text(seen))
        if self._relay is not None and self._relay.unfinished:
            made.add_row("the job says", Text.from_ansi(self._relay.unfinished))
        self._live.update(made, refresh=True)

    def close(self) -> None:
        """The table goes, what the job said stays."""
        if self._relay is not None:
            self._relay.close()
        self._live.stop()


class Relay:
    """A terminal for a job, so that it writes as it would without a watch; its lines are printed
    above the view."""

    def __init__(self) -> None:
        self._ours, self.theirs = os.openpty()
        self.unfinished = ""
        self._thread: threading.Thread | None = None
        with suppress(OSError):
            size = fcntl.ioctl(sys.stderr.fileno(), termios.TIOCGWINSZ, WINDOW)
            fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, size)

    def start(self, console: Console) -> None:
        """Once the job has its end."""
        os.close(self.theirs)
        self._thread = threading.Thread(target=self._pass_on, args=(console,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """When the job has ended."""
        if self._thread is not None:
            self._thread.join(LAST_WORDS_S)

    def _pass_on(self, console: Console) -> None:
        pending = b""
        while chunk := self._read():
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                self._print(console, line)
            self.unfinished = _shown(pending)
        if pending:
            self._print(console, pending)
            self.unfinished = ""

    def _read(self) -> bytes:
        try:
            return os.read(self._ours, CHUNK_BYTES)
        except OSError:  # EIO: nobody has the other end any more
            return b""

    def _print(self, console: Console, line: bytes) -> None:
        console.print(Text.from_ansi(_shown(line)), soft_wrap=True)


def _shown(line: bytes) -> str:
    """What a terminal would show of a line: what follows its last return, as of a progress bar."""
    return line.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace")
