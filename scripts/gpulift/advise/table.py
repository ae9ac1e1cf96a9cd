"""The answer on one screen of the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gpulift.advise import noise
from gpulift.advise.advice import (
    ALREADY_ON,
    FAILED,
    NO_CHANGE,
    NOT_SET,
    OTHER_WORK,
    RESULT_DIFFERS,
    UNDECIDED,
    Advice,
    Row,
    Span,
)
from gpulift.analysis.arms import TIME_DIGITS, time_unit
from gpulift.ground import terminal, text

COLUMNS = ("change", "step", "gain", "result", "memory")
NONE_HELPS = "nothing that was tried helps"
NONE_SHOWN = "nothing is shown to help"


def print_advice(advice: Advice, console: Console) -> None:
    """Changes, the best first, and below them what bounds the step and what to do."""
    table = _table(advice)
    if table.row_count:
        console.print(table)
    for line in _lines(advice):
        console.print(text.visible(line), markup=False, soft_wrap=True)


def _table(advice: Advice) -> Table:
    table = terminal.titled(escape(_title(advice)), ("memory", "step"), COLUMNS, ("step",))
    for row in (*advice.rows, *([advice.together] if advice.together else [])):
        if row.gain is not None and not noise.is_noisy(row):
            table.add_row(*_cells(row))
    return table


def _title(advice: Advice) -> str:
    where = f"{text.visible(advice.device)}, torch {text.visible(advice.torch)}, "
    return (
        f"{where if advice.device else ''}{text.counted(advice.steps, 'step')},"
        f" {text.counted(advice.launches, 'launch', 'launches')} (gain: more than 1 is faster)"
    )


def _cells(row: Row) -> Iterator[str]:
    yield escape(text.visible(row.label))
    yield "" if row.step_s is None else _time(Span(row.step_s, None, None))
    yield _gain(row)
    yield escape(row.result)
    yield ", ".join(_memory(row))


def _gain(row: Row) -> str:
    assert row.gain is not None, "others have no row in the table"
    shown = text.interval(row.gain.estimate, "×")
    if row.verdict == ALREADY_ON:
        return f"already on; worth {shown}"
    if row.verdict == NO_CHANGE and row.least is not None:
        return f"no change: {shown}, below {text.percent(row.least)} not seen"
    if row.verdict in (OTHER_WORK, RESULT_DIFFERS):  # which the next column says
        return f"{shown} {row.why}".rstrip()
    return f"{row.verdict}: {shown}"


def _memory(row: Row) -> Iterator[str]:
    for count, where in ((row.memory_bytes, ""), (row.host_bytes, " host")):
        if count is not None:
            yield f"{'+' if count > 0 else '-'}{text.size(abs(count))}{where}"


def _lines(advice: Advice) -> Iterator[str]:
    yield from advice.pace
    yield from _step(advice)
    yield from advice.noise
    rows = (*advice.rows, *([advice.together] if advice.together else []))
    for row in rows:
        if row.verdict in (FAILED, NOT_SET):
            yield f"{row.verdict}: {row.label}: {row.why}"
    yield from _titled("note", advice.notes)
    yield from _titled("not tried", advice.not_tried)
    if any(row.gain for row in rows):
        yield from _titled("do", advice.do or (_none_helps(rows),))


def _none_helps(rows: Sequence[Row]) -> str:
    undecided = [row.label for row in rows if row.verdict == UNDECIDED and not noise.is_noisy(row)]
    if not undecided:
        return NONE_SHOWN if any(map(noise.is_noisy, rows)) else NONE_HELPS
    return f"{NONE_SHOWN}; undecided: {', '.join(undecided)}: more --launches may tell"


def _titled(title: str, lines: Sequence[str]) -> Iterator[str]:
    return (f"{title}: {line}" for line in lines)


def _step(advice: Advice) -> Iterator[str]:
    if advice.step_s is None:
        yield "no step was measured"
        return
    parts = [f"step {_time(advice.step_s)}"]
    if advice.cached_s is not None:
        parts.append(f"{_time(advice.cached_s)} where its batch is there")
    parts += [advice.bound] if advice.bound else []
    if advice.probe_share is not None:
        parts.append(f"the probe takes {text.percent(advice.probe_share)} of it")
    yield "; ".join(parts)


def _time(span: Span) -> str:
    """148.3 ms [147.9, 148.8]."""
    factor, unit = time_unit(span.mid)
    mid, *ends = (text.digits(one / factor, TIME_DIGITS) for one in span if one is not None)
    return f"{mid} {unit} [{', '.join(ends)}]" if ends else f"{mid} {unit}"
