"""`gpulift report`. What draws is imported when the records could be read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpulift.engine.machine import own_results, results_folder
from gpulift.ground.arguments import Filter, Price, SomeResults, named
from gpulift.ground.entry import say
from gpulift.ground.errors import GpuliftError
from gpulift.ground.text import visible
from gpulift.records.find import require_model
from gpulift.records.read import read_results, reading_once, run_folders
from gpulift.verdicts.matching import selected

if TYPE_CHECKING:
    from gpulift.analysis.analyse import Machine

MOST_LINES = 5  # of what is worth most, on the terminal


@reading_once()
def report(
    results: SomeResults = None,
    models: Annotated[
        bool,
        typer.Option(
            "--models",
            help="RESULTS are GPU models: h100 h200. Their records of the checkout, with the main"
            " facts side by side first.",
        ),
    ] = False,
    gates: Annotated[
        list[Path] | None,
        typer.Option(
            "--gate", parser=named, metavar="FOLDER", help="Evidence of a gate; may be repeated."
        ),
    ] = None,
    base: Annotated[
        Path | None,
        typer.Option(
            "--compare", parser=named, metavar="BASE", help="Verdicts of `compare` BASE RESULTS."
        ),
    ] = None,
    across: Annotated[
        str | None, typer.Option(help="The one declared difference of --compare, as for `compare`.")
    ] = None,
    filter: Filter = None,
    usd_per_hour: Price = None,
    png: Annotated[bool, typer.Option("--png", help="Figures as PNG files, too.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            parser=named,
            metavar="FOLDER",
            help="Folder for the output; report/ in the first folder that is named.",
        ),
    ] = None,
) -> None:
    """Linked HTML pages, the answer first and in Markdown, too, with figures, from records alone.

    index.html has the answer and can be sent alone; what it leads to stands in pages/ beside it.

    A folder above run folders stands for every case of each machine: of today's technique, case
    and arms before what is gone, of most launches of one text up to three, then the newest.
    """
    if not results and not gates and not models:
        raise GpuliftError("name RESULTS..., or --gate FOLDER, or both")
    if (base is not None and not results) or (across is not None and base is None):
        raise GpuliftError("--compare needs RESULTS..., and --across needs --compare")
    if models:
        results = _of_models(results or [], results_folder())
        out = out or own_results() / "report"
    places = [_as_beside(path) for path in results or []]
    from gpulift.analysis.choice import read_cases

    found = selected(read_cases(places), filter)
    from gpulift.analysis.model_records import records_beside
    from gpulift.commands.shared import analysis_of, summary_of
    from gpulift.exchange.csv_table import csv_bytes
    from gpulift.report import changes, page

    made = [changes.of_gate(folder) for folder in gates or ()]
    if base is not None:
        from gpulift.verdicts.comparison import compare

        compared = compare(read_results([base]), found, across, filter=filter)
        made.append(changes.of_comparison(compared, found[0].records[0].context.slug))
    prices = None
    if usd_per_hour:
        from gpulift.analysis.cost import read_prices

        prices = read_prices(usd_per_hour, [run.records[0].context.slug for run in found])
    folder = out or _report_folder([*(results or []), *(gates or [])][0])
    summaries = [summary_of(run) for run in found]
    further = records_beside(summaries, [*places, results_folder()], say)
    changed = [changes.machine_of(change) for change in made]
    analysis = analysis_of(summaries, further, prices, models=changed)
    path = page.write(analysis, folder, made, {"report.csv": csv_bytes(found)}, png)
    for name, machine in analysis.machines.items():
        for line in last_lines(name, machine):
            typer.echo(visible(line))
    typer.echo(path)


def last_lines(name: str, machine: Machine) -> Iterator[str]:
    """What leads the page: of settings added up the sentence, and of whole training steps those
    that gain most, by the figures that the page has of them."""
    from gpulift.analysis.gains import MODELS, leading, step_lists

    yield from (f"{name}: {one.said}" for one in machine.ladders[:1])
    found = leading(machine.gains)
    for line in step_lists(machine.gains, dict.fromkeys(found, "")).faster[:MOST_LINES]:
        gain = found[line.technique]
        over = f"{gain.row.arm} over {gain.row.baseline}"
        yield f"{name}: {gain.told} {line.technique}, {over}, {MODELS.get(gain.model, gain.model)}"


def _as_beside(path: Path) -> Path:
    """By the name under which the checkout's records are read beside it: a run that is read under
    two would be counted twice."""
    whole = Path(os.path.abspath(path))
    return whole if whole.is_relative_to(results_folder()) else path


def _of_models(names: Sequence[Path], results: Path) -> list[Path]:
    """The folders of records of these models, each once."""
    folders = {folder.parent.name: folder.parent for folder in run_folders(results)}
    known = [name for name in folders if not name.startswith("cpu-")]
    none = "--models: there are no records"
    found = dict.fromkeys(require_model(str(name), known, none) for name in names)
    if len(found) < 2:
        raise GpuliftError("--models needs two GPU models or more, as in --models h100 h200")
    return [folders[name] for name in found]


def _report_folder(results: Path) -> Path:
    return (results.parent if results.is_file() else results) / "report"
