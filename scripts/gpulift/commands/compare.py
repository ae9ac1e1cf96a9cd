"""`gpulift compare BASE HEAD`: two sets of records, head against base."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpulift.commands.shared import given_in
from gpulift.ground.arguments import Explained, Filter, Forms, named
from gpulift.ground.entry import say
from gpulift.ground.errors import GpuliftError
from gpulift.ground.text import visible
from gpulift.records.read import read_results
from gpulift.verdicts import comparison, comparison_table, duets, table, thresholds
from gpulift.verdicts.matching import selected

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
OF_TWO = {"--more-head", "--across", "--common", "--thresholds"}


def compare(
    context: typer.Context,
    base: Annotated[Path, typer.Argument(parser=named, metavar="BASE", help=RECORDS)],
    head: Annotated[
        Path | None,
        typer.Argument(
            parser=named,
            metavar="HEAD",
            help="The same; without it BASE holds duets, which measured two builds in turns.",
        ),
    ] = None,
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
    explain: Explained = None,
    forms: Forms = None,
) -> None:
    """Head against base, two sets of records: what is faster, slower, the same or not known."""
    outputs = table.outputs(forms or (), explain)
    if head is None and (given := sorted(OF_TWO & given_in(context).keys())):
        raise GpuliftError(f"{', '.join(given)}: compares two runs: name HEAD")
    least_changes = thresholds.read(thresholds_file)
    first = read_results([base, *(more_base or [])])
    if head is None:
        answer = duets.table(selected(first, filter))
    else:
        second = read_results([head, *(more_head or [])])
        made = comparison.compare(first, second, across, common, filter, least_changes)
        for note in made.notes:
            say(f"warning: {note}")
        answer = comparison_table.table(made)
    if explain is not None:
        for line in table.explained(table.rows_named(answer, explain)):
            typer.echo(visible(line))
    else:
        table.show(answer, outputs, show_all)
        if outputs[0] == table.Output("lines") and not show_all and len(answer.rows) > table.SHORT:
            typer.echo("--all lists every row, --explain CASE the way to its verdict")
    raise typer.Exit(answer.exit_code)
