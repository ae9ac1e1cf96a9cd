"""What is printed on the terminal: consoles that cut no line, tables that break no word."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from copy import copy
from dataclasses import replace
from shutil import get_terminal_size
from textwrap import wrap
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

READABLE = 16  # columns of longer texts are not narrower
UNLIMITED = 100_000
PIPED = 120  # columns, where nothing says how many there are


class WholeLines(Console):
    """A console that cuts no line: a word longer than the terminal is wide goes on in the next."""

    def print(self, *objects: Any, **options: Any) -> None:
        """As of any console."""
        super().print(*objects, **{"crop": False, **options})


def console(to_stderr: bool = False, wide: bool = False) -> Console:
    """A console of the terminal's width; what is asked for as wide is not wrapped."""
    made = WholeLines(stderr=to_stderr, highlight=False, emoji=False)
    # made.is_terminal is also true where FORCE_COLOR asks for colours
    if wide or not made.file.isatty():
        made.width = UNLIMITED if wide else columns()
    return made


def columns() -> int:
    """How wide what is printed is; of a pipe as $COLUMNS says."""
    return get_terminal_size((PIPED, 0)).columns


class UnbrokenTable(Table):
    """A table that breaks no word: half a name or verdict can be neither searched nor copied.

    Where its columns have no room side by side, those that say the same in each row are dropped,
    then those that can be spared, the first of them first, and none that the title names; a line
    has them. Where there is still no room, each row is a block of `heading: value` lines, of all
    columns.
    """

    spared: tuple[str, ...] = ()  # headings

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Columns where there is room for their words, else blocks."""
        dropped = self._dropped(console, options)
        if dropped is None:
            yield from self._blocks(console, options.max_width)
            return
        shown = self._without(dropped)
        if options.max_width >= UNLIMITED:
            shown.box = None  # rules are for rows of several lines
        yield from _without_trailing_blanks(
            segment
            for segment in Table.__rich_console__(shown, console, options)
            if isinstance(segment, Segment)
        )
        same = self._constants(console)
        told = [f"{heading} {same[heading]}" for heading in dropped if heading in same]
        if told:
            yield Text(f"In each row: {', '.join(told)}.")
        lost = [heading for heading in dropped if heading not in same]
        if lost:
            yield Text(f"Not shown: {', '.join(lost)}; --wide shows all columns.")

    def _dropped(self, console: Console, options: ConsoleOptions) -> list[str] | None:
        """The headings for which there is no room; None where that is not enough."""
        if options.max_width >= UNLIMITED:
            return []
        headings = [str(column.header) for column in self.columns]
        least = list(zip(headings, self._least(console, options), strict=True))
        named = " ".join(str(self.title).lower().split())
        asked = dict.fromkeys((*self._constants(console), *self.spared))
        spared = [one for one in asked if one in headings and one.lower() not in named]
        for count in range(len(spared) + 1):
            dropped = spared[:count]
            needed = sum(width for heading, width in least if heading not in dropped)
            if needed + self._extra_width <= options.max_width:
                return dropped
        return None

    def _constants(self, console: Console) -> dict[str, str]:
        """Of columns that say the same in each row, what that is."""
        rows = {str(one.header): _plain(console, one.cells) for one in self.columns}
        return {
            heading: cells[0]
            for heading, cells in rows.items()
            if heading and len(cells) > 1 and {*cells} == {cells[0]} and cells[0].strip()
        }

    def _without(self, headings: Sequence[str]) -> UnbrokenTable:
        kept = [column for column in self.columns if str(column.header) not in headings]
        made = copy(self)
        made.columns = [replace(column, _index=index) for index, column in enumerate(kept)]
        return made

    def _calculate_column_widths(self, console: Console, options: ConsoleOptions) -> list[int]:
        """As of any table where that breaks no word; else what is missing is shared otherwise."""
        widths = super()._calculate_column_widths(console, options)
        if options.max_width >= UNLIMITED:
            return widths
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


def _without_trailing_blanks(segments: Iterable[Segment]) -> RenderResult:
    """Else one long cell would make every line as long."""
    for line in Segment.split_lines(segments):
        while line and not line[-1].text.strip():
            line.pop()
        if line:
            line[-1] = line[-1]._replace(text=line[-1].text.rstrip())
        yield from line
        yield Segment.line()


def titled(
    title: str,
    spared: Sequence[str] = (),
    columns: Iterable[str] = (),
    numbers: Container[str] = (),
    ruled: bool = False,
) -> UnbrokenTable:
    """A table, without a title where that is empty; `spared` are the columns that a narrow terminal
    does without, the first of them first. Rules are for rows of several lines."""
    made = UnbrokenTable(
        title=title or None,
        title_justify="left",
        title_style="bold",
        box=box.HORIZONTALS if ruled else None,
        show_lines=ruled,
        pad_edge=False,
    )
    made.spared = tuple(spared)
    for name in columns:
        made.add_column(name, justify="right" if name in numbers else "left")
    return made
