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

from gpulift.ground.entry import say
from gpulift.watch import words
from gpulift.watch.cards import Card
from gpulift.watch.samples import Sample

LINE_EVERY_S = 10.0
CHUNK_BYTES = 1 << 16
LAST_WORDS_S = 1.0  # for what the job wrote when it ended; its children may keep the terminal open
WINDOW = bytes(8)  # struct winsize
LONGEST_LINE = 1 << 20  # bytes; what does not end by then is broken there
UNFINISHED = 200  # characters of a line that go below the view


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
    """A table below the job's output, which is printed above it; nothing where the terminal is
    gone."""

    def __init__(self, cores: float, cards: Sequence[Card], relay: Relay | None) -> None:
        self._cores = cores
        self._cards = cards
        self._relay = relay
        self._console = Console(stderr=True, highlight=False, emoji=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        with suppress(OSError):
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
        with suppress(OSError):
            self._live.stop()


class Relay:
    """A terminal for a job, so that it writes as it would without a watch; its lines are printed
    above the view. It is read to the end of the job, even where nobody sees that any more."""

    def __init__(self) -> None:
        self._ours, self.theirs = os.openpty()
        self.unfinished = ""
        self._works = True
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
            if len(pending) > LONGEST_LINE:
                lines, pending = [*lines, pending], b""
            for line in lines:
                self._print(console, line)
            pending = pending[_last_return(pending) :]
            self.unfinished = _shown(pending[: 4 * UNFINISHED])[:UNFINISHED]
        if pending:
            self._print(console, pending)
            self.unfinished = ""

    def _read(self) -> bytes:
        try:
            return os.read(self._ours, CHUNK_BYTES)
        except OSError:  # EIO: nobody has the other end any more
            return b""

    def _print(self, console: Console, line: bytes) -> None:
        if self._works:
            try:
                console.print(Text.from_ansi(_shown(line)), soft_wrap=True)
            except OSError:  # the terminal is gone
                self._works = False


def _shown(line: bytes) -> str:
    """What a terminal would show of a line: what follows its last return, as of a progress bar."""
    return line[_last_return(line) :].rstrip(b"\r").decode("utf-8", "replace")


def _last_return(line: bytes) -> int:
    """Where what follows it begins; one at the end of a line belongs to that."""
    return line.rstrip(b"\r").rfind(b"\r") + 1
