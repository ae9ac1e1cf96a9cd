"""What several commands share: options, where results are, how a run is summed up."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from gpulift.analysis.analyse import Analysis, analyse, read_beside
from gpulift.analysis.cost import Prices
from gpulift.analysis.doubts import Doubts
from gpulift.analysis.machine import qualification
from gpulift.analysis.machine.results import CheckResult
from gpulift.analysis.neighbours import neighbours_at
from gpulift.analysis.summary import Summary
from gpulift.engine import machine, packages
from gpulift.engine.machine import TechniqueInfo
from gpulift.ground.arguments import QUICK, named
from gpulift.ground.entry import say
from gpulift.ground.errors import GpuliftError
from gpulift.records.model import Context, Record
from gpulift.records.read import Run, newest_run, run_folders
from gpulift.report import tables

Quick = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Run only the most informative cases that fit in TIME: 60s, 5m;"
        f" {QUICK} where none is given.",
    ),
]
Verbose = Annotated[
    bool, typer.Option("--verbose", help="Name the cases that --quick has no time for.")
]
Out = Annotated[
    Path | None, typer.Option(parser=named, metavar="FOLDER", help="Folder for the output.")
]

results_folder = machine.results_folder


def _gpu(name: str) -> int:
    (index,) = machine.gpus_named(machine.find_bench(), name, several=False)
    return index


Gpu = Annotated[
    int | None,
    typer.Option(
        parser=_gpu,
        metavar="INDEX|UUID",
        help="The GPU by index or by UUID or its start; the first one by default.",
    ),
]


def given_in(context: typer.Context) -> dict[str, Any]:
    """What the command line has: values by the options' names on it, of arguments by their own."""
    params = ((one.opts[0], one.name or "") for one in context.command.params)
    sources = [(option, name, context.get_parameter_source(name)) for option, name in params]
    return {
        option: context.params[name]
        for option, name, source in sources
        if source and source.name == "COMMANDLINE"
    }


def mode_of(context: typer.Context, modes: Mapping[str, str]) -> str:
    """Which of these flags is given; empty where none is. Refuses an option of another: those of
    each, and of none, stand in `modes`."""
    given = given_in(context)
    mode = next((flag for flag in modes if flag in given), "")
    of_others = {*" ".join([*modes, *modes.values()]).split()} - {mode, *modes[mode].split()}
    for option in sorted(of_others & given.keys()):
        own = " or ".join(flag for flag in modes if flag and option in modes[flag].split())
        with_it = f"does not go with {mode}" if mode else f"goes with {own} alone"
        raise GpuliftError(f"{option}: {with_it}")
    return mode


def print_json(value: Any) -> None:
    """JSON on stdout; non-finite numbers are refused."""
    typer.echo(json.dumps(value, indent=2, allow_nan=False, default=str))


def examine(
    gpu: int | None, more_modules: Sequence[Path] = ()
) -> tuple[Context, list[TechniqueInfo]]:
    """This machine, and what can be measured with the Python of the set-up."""
    return machine.describe_asked(machine.find_bench(), gpu), known_techniques(more_modules)


def known_techniques(more_modules: Sequence[Path] = ()) -> list[TechniqueInfo]:
    """What can be measured with the Python of the set-up."""
    bench = machine.find_bench()
    infos = machine.catalogue(bench, more_modules)
    return packages.with_missing(infos, [bench.parent / "modules", *more_modules])


def summary_of(run: Run) -> Summary:
    """The run with its model's reference; warnings of its reading are said."""
    return qualification.summary_of(run, say)


def others(summary: Summary) -> list[Summary]:
    """The newest run of every GPU model among the committed results."""
    folders: dict[Path, list[Path]] = {}
    for folder in run_folders(results_folder()):
        if not folder.parent.name.startswith("cpu-"):
            folders.setdefault(folder.parent, []).append(folder)
    runs = [newest_run(of_model) for of_model in folders.values()]
    return [summary_of(run) for run in runs if run and run.folder != summary.run.folder]


def analysis_of(
    summaries: Sequence[Summary],
    further: Sequence[Record] = (),
    prices: Prices | None = None,
    *,
    verdicts: Mapping[Path, Sequence[CheckResult]] | None = None,
    models: Iterable[str] = (),
) -> Analysis:
    """These runs held against the checkout's results; `models`, by slug, are others that the
    certificates are wanted of."""
    slugs = [*(one.run.records[0].context.slug for one in summaries), *models]
    neighbours = neighbours_at([one.run for one in summaries], say)
    beside = read_beside(results_folder(), slugs, further, prices, neighbours)
    return analyse(summaries, beside, verdicts)


def show(screen: Console, doubts: Doubts, summary: Summary, beside: Sequence[Summary] = ()) -> None:
    """Roofs, speedups and what was not measured, on the terminal."""
    screen.print(tables.roofs(summary, beside))
    if summary.unit_costs:
        screen.print(tables.unit_costs(summary))
    if any(one.worths for one in (summary, *beside)):
        screen.print(tables.worths(summary, beside, doubts))
    if summary.skipped:
        screen.print(tables.problems(summary.skipped, "Skipped"))
    if summary.broken:
        screen.print(tables.problems(summary.broken, "Failed"))
