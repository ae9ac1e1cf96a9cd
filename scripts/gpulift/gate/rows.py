"""What gpulift-bench is told to measure: exactly these rows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gpulift.engine.again import pattern_of
from gpulift.engine.runs import ROWS_FILE
from gpulift.gate.evidence import Row
from gpulift.ground.whole import write_whole


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
