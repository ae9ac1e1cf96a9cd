"""`gpulift bench SCRIPT`: the arms of one Python file, measured and judged like any technique."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import typer
from rich.table import Table

from gpulift import stats, tables, techniques, terminal, text
from gpulift.analysis import arms
from gpulift.analysis.facts import UNKNOWN, facts
from gpulift.analysis.summary import Case, Summary, Worth, group_cases
from gpulift.commands import summary_of
from gpulift.errors import GpuliftError
from gpulift.records.read import read_results

ARM_TIME_S = 1.0  # so that steps of 50 ms get enough windows
RESULTS = "gpulift-results"  # below the current folder


@contextmanager
def prepared(script: Path) -> Iterator[Path]:
    """A folder of modules with this one technique. Throws GpuliftError where the file is none."""
    if not script.is_file():
        raise GpuliftError(f"{script}: there is no such file")
    if script.suffix != ".py":
        raise GpuliftError(
            f"{script}: is no Python file; `./gpulift run --techniques DIR` takes .cpp and .cu"
        )
    source = techniques.source_of(script)
    with _temporary() as above:
        modules = Path(above) / source.stem
        techniques.add_script(source, modules)
        yield modules


def _temporary() -> TemporaryDirectory[str]:
    try:
        return TemporaryDirectory(prefix="gpulift-")
    except OSError as error:
        raise GpuliftError(
            f"no folder for temporary files can be used ({error.strerror}); name one in TMPDIR"
        ) from None


def show(folder: Path, wide: bool) -> None:
    """What was measured, what was not and why, and where records and report are."""
    (run,) = read_results([folder])
    summary = summary_of(run)
    screen = terminal.console(wide=wide)
    made = table(summary)
    if made.row_count:
        screen.print(made)
    for found, title in ((summary.skipped, "Skipped"), (summary.broken, "Failed")):
        if found:
            screen.print(tables.problems(found, title))
    from gpulift.report import page  # which takes half a second

    report = page.write([summary], folder / "report")
    typer.echo(f"records: {folder}")
    typer.echo(f"report: {report}")


def table(summary: Summary) -> Table:
    """An arm per row, held against the first of its case."""
    records = summary.run.records
    kinds = dict.fromkeys(record.kind for record in records)
    cases = [case for kind in kinds for case in group_cases(records, kind)]
    worths = {(row.case.case_id, row.arm): row for row in summary.worths}
    title = f"{records[0].technique} on {summary.run.machine} (ratio: more than 1 is faster)"
    spared = ("energy per step", "CPU per step", "items per second", "memory", "check")
    made = terminal.titled(title, spared)
    made.add_column("case" if records[0].case_id else "")
    made.add_column("arm")
    for name in ("time per step", "items per second", "memory", "CPU per step", "energy per step"):
        made.add_column(name, justify="right")
    for name in ("ratio", "check"):
        made.add_column(name)
    for case in cases:
        for arm in case.arms:
            made.add_row(
                text.case_label(case.case_id),
                arm,
                *_amounts(case, arm),
                _ratio(worths.get((case.case_id, arm))),
                _check(case, arm),
            )
    return made


def _amounts(case: Case, arm: str) -> list[str]:
    """Time, rate, memory, CPU seconds and joules of a step."""
    known = facts(case.arms[arm])
    time_s = case.times_s[arm]
    cost = known.cost
    rate = UNKNOWN
    if cost and cost.item and cost.items > 0:
        rate = arms.item_rate(stats.rate(time_s, cost.items).value, cost.item)
    return [
        text.seconds(time_s.value),
        rate,
        text.size(known.memory_bytes),
        UNKNOWN if known.cpu_s is None else text.seconds(known.cpu_s),
        UNKNOWN if known.joules is None else text.joules(known.joules),
    ]


def _ratio(row: Worth | None) -> str:
    if row is None:
        return ""
    glyph, _ = text.verdict(row.speedup)
    return f"{glyph} {text.speedup(row.speedup)} against {row.baseline}"


def _check(case: Case, arm: str) -> str:
    """Of the launch that says least of it, or whose result was furthest off."""
    return arms.check(
        max(case.arms[arm], key=lambda one: (not one.checked, one.check_error or 0.0))
    )
