"""What is printed on the terminal: consoles that cut no line, tables that break no word."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

PLAIN_WIDTH = 200
READABLE = 16  # columns of longer texts are not narrower
UNLIMITED = 100_000


class WholeLines(Console):
    """A console that cuts no line: a word longer than the terminal is wide goes on in the next."""

    def print(self, *objects: Any, **options: Any) -> None:
        """As of any console."""
        super().print(*objects, **{"crop": False, **options})


def console(to_stderr: bool = False) -> Console:
    """A console that never wraps tables into a pipe's 80 columns."""
    made = WholeLines(stderr=to_stderr, highlight=False, emoji=False)
    if not made.file.isatty():  # made.is_terminal is also true where FORCE_COLOR asks for colours
        made.width = PLAIN_WIDTH
    return made


class UnbrokenTable(Table):
    """A table that breaks no word: half a name or verdict can be neither searched nor copied.

    Where its columns have no room side by side, each row is a block of `heading: value` lines.
    """

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Columns where there is room for their words, else blocks."""
        if sum(self._least(console, options)) + self._extra_width > options.max_width:
            yield from self._blocks(console, options.max_width)
        else:
            yield from super().__rich_console__(console, options)

    def _calculate_column_widths(self, console: Console, options: ConsoleOptions) -> list[int]:
        """As of any table where that breaks no word; else what is missing is shared otherwise."""
        widths = super()._calculate_column_widths(console, options)
        least = self._least(console, options)
        if all(width >= needed for width, needed in zip(widths, least, strict=True)):
            return widths
        natural = super()._calculate_column_widths(console, options.update_width(UNLIMITED))
        return share(least, natural, options.max_width)

    def _least(self, console: Console, options: ConsoleOptions) -> list[int]:
        """The width of each column below which it would break a word, or could not be read."""
        _, right, _, left = self.padding
        least = []
        for column in self.columns:
            heading, *cells = (
                Measurement.get(console, options.update_width(UNLIMITED), cell)
                for cell in (column.header, *column.cells)
            )
            words = [min(cell.maximum, max(cell.minimum, READABLE)) for cell in cells]
            least.append(left + right + max([heading.minimum, *words]))
        if least and not self.pad_edge:
            least[0] -= left
            least[-1] -= right
        return least

    def _blocks(self, console: Console, width: int) -> RenderResult:
        """Each row as lines of its own, without cells that are empty."""
        headings, *rows = zip(
            *(_plain(console, (one.header, *one.cells)) for one in self.columns), strict=True
        )
        if self.title:
            yield Text(str(self.title), style=self.title_style or "")
        for row in rows:
            for line in _block(headings, row, width):
                yield Segment(f"{line}\n")
            yield Segment("\n")
        if self.caption:
            yield Text(str(self.caption), style=self.caption_style or "table.caption")


def share(least: Sequence[int], natural: Sequence[int], room: int) -> list[int]:
    """A width for each column, the widest made narrower until they fit, none below its least."""
    widths = list(natural)
    while sum(widths) > max(room, sum(least)):
        _, at = max((width, at) for at, width in enumerate(widths) if width > least[at])
        widths[at] -= 1
    return widths


def _plain(console: Console, cells: Iterable[RenderableType]) -> list[str]:
    return [
        cell.plain if isinstance(cell, Text) else console.render_str(str(cell)).plain
        for cell in cells
    ]


def _block(headings: Sequence[str], row: Sequence[str], width: int) -> list[str]:
    """The lines of one row; a cell without a heading, as a tick is, stands before the next one."""
    lines, before = [], ""
    for heading, cell in zip(headings, row, strict=True):
        value = " ".join(cell.split())
        if value and heading:
            lines.append(f"{before}{heading}: {value}")
            before = ""
        elif value:
            before = f"{value} "
    lines += [before] if before else []
    broken = (
        wrap(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        for line in lines
    )
    return [part for parts in broken for part in parts]


def titled(title: str) -> UnbrokenTable:
    """A table without lines, and without a title where that is empty."""
    return UnbrokenTable(
        title=title or None, title_justify="left", title_style="bold", box=None, pad_edge=False
    )
