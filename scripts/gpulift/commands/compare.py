"""`gpulift compare BASE HEAD`: arguments, table, JSON and explanations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpulift.commands import compare_cells as cells
from gpulift.commands.compare_markdown import markdown
from gpulift.ground import steps, terminal, text
from gpulift.ground.arguments import Filter, Wide, named
from gpulift.ground.entry import say
from gpulift.ground.errors import USAGE, GpuliftError
from gpulift.ground.steps import step
from gpulift.ground.text import visible
from gpulift.records.read import read_results
from gpulift.verdicts import decision, thresholds
from gpulift.verdicts.explain import attribution, explain, run_launch_data
from gpulift.verdicts.matching import matching
from gpulift.verdicts.two_sets import UNITS, Comparison, Row, values
from gpulift.verdicts.two_sets import compare as compare_runs

STATS_METHOD = "1"  # of stats.py, as its docstring says

RECORDS = (
    "Record file or run folder; a folder of run folders stands for the full one of most techniques,"
    " the newest of these, for each machine in it."
)

More = Annotated[
    list[Path] | None,
    typer.Option(
        parser=named,
        metavar="RUN",
        help="A further run of the same side; may be repeated. With two runs or more on each side"
        " the run is what counts, and not the launch.",
    ),
]
Explain = Annotated[
    str | None,
    typer.Option(
        "--explain",
        metavar="CASE",
        help="From windows to verdict; CASE is a part of technique/case/arm.",
    ),
]


def compare(
    base: Annotated[Path, typer.Argument(parser=named, metavar="BASE", help=RECORDS)],
    head: Annotated[Path, typer.Argument(parser=named, metavar="HEAD", help=RECORDS)],
    more_base: More = None,
    more_head: More = None,
    across: Annotated[
        str | None,
        typer.Option(
            metavar="FACTOR",
            help="The one declared difference, which is then the question: driver, torch, commit,"
            " card or gpu-model. One card a side asks about these two; several a side, with"
            " --more-base and --more-head, are compared as two samples of cards.",
        ),
    ] = None,
    common: Annotated[
        bool,
        typer.Option(
            "--common",
            help="List cases and arms that the two sides do not share as skipped, and compare the"
            " rest; without it they end the comparison.",
        ),
    ] = False,
    show_all: Annotated[
        bool, typer.Option("--all", help="Show every row, not only those that changed.")
    ] = False,
    filter: Filter = None,
    thresholds_file: thresholds.ThresholdsFile = None,
    explained: Explain = None,
    wide: Wide = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Markdown for a pull request instead of a table.")
    ] = False,
) -> None:
    """Head against base, two sets of records: what is faster, slower, the same or not known."""
    if explained is not None and as_json:
        raise GpuliftError("--json holds every step already: leave --explain or --json out", USAGE)
    if as_markdown and (as_json or explained is not None):
        raise GpuliftError("--markdown stands alone: leave --json and --explain out", USAGE)
    least_changes = thresholds.read(thresholds_file)
    sides = [
        read_results([first, *(more or [])])
        for first, more in ((base, more_base), (head, more_head))
    ]
    found = compare_runs(sides[0], sides[1], across, common, filter, least_changes)
    for note in found.notes:
        say(f"warning: {note}")
    if as_json:
        typer.echo(json.dumps(as_data(found), indent=2, allow_nan=False))
    elif as_markdown:
        typer.echo(markdown(found), nl=False)
    elif explained is not None:
        rows = matching(found.rows, lambda row: row.name, explained)
        typer.echo("\n\n".join(_explanation(found, row) for row in rows))
    else:
        _show(found, show_all, wide)
    raise typer.Exit(found.exit_code)


def as_data(found: Comparison) -> dict[str, Any]:
    """Everything of a comparison as JSON; unknown is null, changes are fractions."""
    return {
        "stats_method": STATS_METHOD,
        "decision_method": decision.DECISION_METHOD,
        "base": list(found.base),
        "head": list(found.head),
        "across": found.across,
        "question": found.question,
        "declared": [
            {"fact": one.fact, "base": one.base, "head": one.head} for one in found.common.declared
        ],
        "equal": dict(found.common.equal),
        "known_on_one_side": list(found.common.one_sided),
        "unit": found.unit,
        "family": found.family,
        "margins": {
            "least": decision.TWO_RUNS.least,
            "equivalent": decision.TWO_RUNS.equivalent,
        },
        "thresholds": dict(found.thresholds),
        "filter": found.filter,
        "counts": found.counts,
        "exit_code": found.exit_code,
        "unfinished": list(found.unfinished),
        "notes": list(found.notes),
        "work": {technique: list(differs) for technique, differs in found.work.items()},
        "rows": [_row_data(row, found.unit) for row in found.rows],
    }


def rows_table(found: Comparison, show_all: bool) -> Table:
    """The rows that changed, or all of them, worst first."""
    rows = [row for row in found.rows if show_all or row.verdict.verdict in cells.CHANGED]
    told = [_cells(row, found) for row in rows]
    title = "Time of head against base (below 0: head is faster)"
    unit = UNITS[found.unit]
    numbers = ("base", "head", "change", "95 % interval", unit)
    reason = ["reason"] if any(one[-1] for one in told) else []
    columns = ("verdict", "technique", "case", "arm", *numbers, *reason)
    table = terminal.titled(title, [unit, "reason"], columns, numbers)
    for one in told:
        table.add_row(*(Text(visible(cell)) for cell in one[: len(table.columns)]))
    return table


def summary_line(found: Comparison) -> str:
    """The rows, the family and the methods."""
    across = f" across {found.across}" if found.across else ""
    return (
        f"{len(found.rows)} rows{across}, {found.family} comparisons in the family, unit"
        f" {found.unit}; stats method {STATS_METHOD}, decision method {decision.DECISION_METHOD}"
    )


def _show(found: Comparison, show_all: bool, wide: bool) -> None:
    """Counts, what changed, what was not told and what would tell it, what it rests on."""
    screen = terminal.console(wide=wide)
    lines = [cells.counted(found), *found.unfinished]
    table = rows_table(found, show_all)
    if table.row_count:
        _print(screen, lines)
        screen.print(table)
        lines = []
    lines += cells.untold(found)
    lines += [] if show_all else ["--all lists every row, --explain CASE the way to its verdict"]
    lines += [f"base: {', '.join(found.base)}", f"head: {', '.join(found.head)}"]
    lines += [f"declared difference: {one}" for one in found.common.declared]
    lines += [f"question: {found.question}"] if found.question else []
    lines += [*found.work_lines, *(f"{name}: {told}" for name, told in found.asked)]
    _print(screen, [*lines, summary_line(found)])


def _print(screen: Console, lines: Sequence[str]) -> None:
    for line in lines:
        screen.print(visible(line), soft_wrap=True, markup=False)


def _cells(row: Row, found: Comparison) -> list[str]:
    return [
        row.verdict.verdict,
        row.technique,
        text.case_label(row.case_id),
        row.arm,
        *cells.sides(row, found.unit),
        cells.change(row),
        cells.interval(row),
        cells.units(row, found.unit),
        cells.reason(row, found.family),
    ]


def _explanation(found: Comparison, row: Row) -> str:
    common = found.common
    facts = [f"{len(common.equal)} facts are equal on both sides"]
    facts += [f"declared with --across: {one}" for one in common.declared]
    facts += [f"the question: {found.question}"] if found.question else []
    facts += [f"only one side records {name}" for name in common.one_sided]
    facts += [f"the work may differ: {one}" for one in found.work.get(row.technique, ())]
    lines = [step(steps.COMPARABILITY, fact) for fact in facts]
    lines += explain(row.base, row.head, row.verdict, found.unit)
    return "\n  ".join(map(visible, [f"{row.name}: {row.verdict.verdict}", *lines]))


def _row_data(row: Row, unit: str) -> dict[str, Any]:
    difference = row.verdict.difference
    attributed = attribution(row.base, row.head, row.verdict)
    return {
        "technique": row.technique,
        "case": row.case_id,
        "arm": row.arm,
        "verdict": row.verdict.verdict,
        "reason": row.verdict.reason,
        "measure": row.quantity,
        "margins": {"least": row.margins.least, "equivalent": row.margins.equivalent},
        "change": row.change,
        "low": difference.ratio.low - 1 if difference and difference.ratio.low else None,
        "high": difference.ratio.high - 1 if difference and difference.ratio.high else None,
        "log_mean": difference.log_mean if difference else None,
        "standard_error": difference.standard_error if difference else None,
        "degrees_of_freedom": difference.degrees if difference else None,
        "units": [difference.base_launches, difference.head_launches] if difference else None,
        "smallest_effect": row.verdict.smallest_effect,
        "path": list(row.verdict.path),
        "unit_logs": {"base": values(row.base, unit), "head": values(row.head, unit)},
        "attribution": attributed.data if attributed else None,
        "base": [run_launch_data(one) for one in row.base],
        "head": [run_launch_data(one) for one in row.head],
    }
