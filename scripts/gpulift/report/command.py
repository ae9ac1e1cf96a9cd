"""`gpulift report`. What draws is imported when the records could be read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from gpulift.arguments import Filter, Price, SomeResults, named
from gpulift.compare.matching import selected
from gpulift.entry import make_app, say
from gpulift.errors import GpuliftError
from gpulift.records.read import Run, read_results

if TYPE_CHECKING:
    from gpulift.analysis.summary import Summary


def report(
    results: SomeResults = None,
    gates: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Option(
            "--gate", parser=named, metavar="FOLDER", help="Evidence of a gate; may be repeated."
        ),
    ] = None,
    base: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--compare", parser=named, metavar="BASE", help="Verdicts of `compare` BASE RESULTS."
        ),
    ] = None,
    across: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="The one declared difference of --compare, as for `compare`."),
    ] = None,
    filter: Filter = None,
    usd_per_hour: Price = None,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            parser=named,
            metavar="FOLDER",
            help="Folder for the output; report/ in the first folder that is named.",
        ),
    ] = None,
) -> None:
    """One HTML page, its Markdown twin and figures, from records alone.

    A folder above run folders stands for every case of each machine, each as one run has it: in two
    launches or more where there is such a run, full before quick, then the newest.
    """
    if not results and not gates:
        raise GpuliftError("name RESULTS..., or --gate FOLDER, or both")
    if (base is not None and not results) or (across is not None and base is None):
        raise GpuliftError("--compare needs RESULTS..., and --across needs --compare")
    found = selected(read_results(results or [], every_case=True), filter)
    from gpulift.analysis.model_records import records_beside
    from gpulift.commands import results_folder
    from gpulift.report import changes, page

    made = []
    if gates:
        from gpulift.gate.command import judge_again

        made += [changes.from_gate(judge_again(folder)) for folder in gates]
    if base is not None:
        from gpulift.compare.judge import compare

        compared = compare(read_results([base]), found, across, filter=filter)
        made.append(changes.from_comparison(compared, found[0].records[0].context.slug))
    prices = None
    if usd_per_hour:
        from gpulift.costing import read_prices

        prices = read_prices(usd_per_hour, [run.records[0].context.slug for run in found])
    folder = out or _report_folder([*(results or []), *(gates or [])][0])
    summaries = [_summed_up(run) for run in found]
    places = [*(results or []), results_folder()]
    further = records_beside(summaries, places, say)
    typer.echo(page.write(summaries, folder, changes=made, further=further, prices=prices))


def _summed_up(run: Run) -> Summary:
    """With the card's health, which takes long where there are many records."""
    from gpulift.commands import summary_of
    from gpulift.qualify.saved import health_of

    return replace(summary_of(run), health=health_of(run))


def _report_folder(results: Path) -> Path:
    return (results.parent if results.is_file() else results) / "report"


app = make_app()  # of this command alone
app.command()(report)
