"""How far the processes of a command are, on stderr."""

from __future__ import annotations

import sys

from rich.markup import escape

from gpulift.ground import terminal
from gpulift.ground.entry import say
from gpulift.ground.text import visible


class Progress:
    """A line for each process; what it does now stands below where a person watches, unless its own
    output does."""

    def __init__(self, shows_output: bool) -> None:
        watched = sys.stderr.isatty() and not shows_output
        self._status = terminal.console(to_stderr=True).status("starting") if watched else None

    def __enter__(self) -> Progress:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def begin(self, title: str) -> None:
        """The next process."""
        say(title)
        self.phase("starting")

    def phase(self, text: str) -> None:
        """What it does now."""
        if self._status is not None:
            self._status.update(escape(visible(text)))
