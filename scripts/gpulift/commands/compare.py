"""`gpulift compare BASE HEAD`: two sets of records, head against base."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpulift.ground.arguments import Filter, named
from gpulift.ground.entry import say
from gpulift.ground.errors import USAGE, GpuliftError
from gpulift.ground.text import visible
from gpulift.records.read import read_results
from gpulift.verdicts import comparison, comparison_table, table, thresholds

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
    _wide: Annotated[bool, typer.Option("--wide", hidden=True)] = False,  # lines are whole now
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of lines.")] = False,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="A comment for a pull request.")
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
    made = comparison.compare(sides[0], sides[1], across, common, filter, least_changes)
    for note in made.notes:
        say(f"warning: {note}")
    answer = comparison_table.table(made)
    if explained is not None:
        for line in table.explained(table.rows_named(answer, explained)):
            typer.echo(visible(line))
    elif as_json or as_markdown:
        typer.echo(table.FORMS["json" if as_json else "markdown"](answer))
    else:
        for line in table.lines(answer, show_all):
            typer.echo(visible(line))
        if not show_all and len(answer.rows) > table.SHORT:
            typer.echo("--all lists every row, --explain CASE the way to its verdict")
    raise typer.Exit(made.exit_code)
