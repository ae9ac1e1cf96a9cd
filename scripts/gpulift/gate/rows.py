"""Which rows a gate of techniques has, and how gpulift-bench is told to measure exactly these."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gpulift.engine import machine
from gpulift.engine.again import pattern_of
from gpulift.engine.machine import TechniqueInfo
from gpulift.engine.runs import ROWS_FILE
from gpulift.gate.evidence import Row
from gpulift.ground import text
from gpulift.ground.errors import NOT_COMPARABLE, GpuliftError
from gpulift.ground.whole import write_whole

NAMED = 3  # of the cases that one side lacks


def choose_rows(
    base: Iterable[TechniqueInfo],
    head: Iterable[TechniqueInfo],
    filter: str | None,
    all_cases: bool,
    more: str = "; --all takes all",
) -> list[Row]:
    """The selected rows, which both sides must have; refuses (exit code 4) what one side lacks.

    `more` says how a user gets at other than the quick cases.
    """
    matches = machine.matcher(filter)
    sides = (cases_of(base), cases_of(head))
    chosen = [
        {
            row
            for row, quick in side.items()
            if (quick or all_cases) and matches(row.technique, row.case, row.id)
        }
        for side in sides
    ]
    lacking = [(name, chosen[i] - sides[1 - i].keys()) for i, name in enumerate(("base", "head"))]
    if any(rows for _, rows in lacking):
        named = "; ".join(
            f"only in the {name}: {text.some(sorted(row.id for row in rows), NAMED)}"
            for name, rows in lacking
            if rows
        )
        raise GpuliftError(
            f'not comparable: {named}; leave them out with --filter "-NAME"', NOT_COMPARABLE
        )
    if not chosen[0] | chosen[1]:
        machine.require_selected([*base, *head], filter)
        what = f"the filter {filter!r}" if filter else "the selection"
        hint = "" if all_cases else f" among the quick cases{more}"
        raise GpuliftError(f"no case matches {what}{hint}")
    return sorted(chosen[0] | chosen[1])


def cases_of(infos: Iterable[TechniqueInfo]) -> dict[Row, bool]:
    """The rows, and whether each is quick enough for many launches, which whole steps are not."""
    return {
        Row(info.id, case.id, arm): case.quick and not info.whole_steps
        for info in infos
        for case in info.cases
        for arm in info.arms
    }


def selecting(rows: Iterable[Row], folder: Path) -> list[str]:
    """The options that select the rows; their list is written into the folder of the records."""
    file = folder / ROWS_FILE
    lines = [f"{row.technique}\t{row.case_id}\t{row.arm}\n" for row in rows]
    write_whole("".join(lines), file, lasting=False)
    return ["--rows", str(file)]


def selecting_by_filter(rows: Iterable[Row]) -> list[str]:
    """The same for a gpulift-bench of before --rows, whose names go on after the arm."""
    arms: dict[str, list[str]] = {}
    for row in rows:
        arms.setdefault(row.case, []).append(row.arm)
    cases = "|".join(pattern_of(case, names) for case, names in arms.items())
    return [f"--benchmark_filter=^({cases})/iterations:"]
