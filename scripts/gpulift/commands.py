"""What several commands share: options, where results are, how a run is summed up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from rich.console import Console

from gpulift import machine, packages, tables
from gpulift.analysis.doubts import doubts_of
from gpulift.analysis.reference import find_reference
from gpulift.analysis.summary import Summary, summarise
from gpulift.arguments import named
from gpulift.citing import errata
from gpulift.entry import say
from gpulift.errors import GpuliftError
from gpulift.machine import TechniqueInfo
from gpulift.quick import DEFAULT
from gpulift.records.model import Context, slug
from gpulift.records.read import Run, newest_run, run_folders

# typer reads these annotations at run time; Optional keeps them readable on Python 3.10.
Quick = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="TIME",
        help="Only the cases that tell most per second, as many as there is time for: 60s, 5m;"
        f" {DEFAULT} where none is given.",
    ),
]
Out = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(parser=named, metavar="FOLDER", help="Folder for the output."),
]


def _gpu(name: str) -> int:
    (index,) = machine.gpus_named(machine.find_bench(), name, several=False)
    return index


Gpu = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(
        parser=_gpu,
        metavar="INDEX|UUID",
        help="The GPU by index or by UUID or its start; the first one by default.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]


def print_json(value: Any) -> None:
    """JSON on stdout; non-finite numbers are refused."""
    typer.echo(json.dumps(value, indent=2, allow_nan=False, default=str))


def results_folder() -> Path:
    """The checkout's results."""
    return machine.checkout_root() / "results"


def model_named(name: str, known: Sequence[str]) -> str | None:
    """The known model that a user means: the one of that name, or else the one that has all of it
    as whole words: an L4 is no L40S. Throws GpuliftError where there are several."""
    wanted = name if name in known else slug(name)  # which takes `cpu` for a word of a name
    if wanted in known:
        return wanted
    fitting = [model for model in known if f"-{wanted}-" in f"-{model}-"]
    if len(fitting) > 1:
        raise GpuliftError(f"{name} is a part of {', '.join(fitting)}: name one")
    return fitting[0] if fitting else None


def require_model(name: str, known: Sequence[str], none: str) -> str:
    """The known model that a user means; throws GpuliftError, which says that there is none of it
    (as in `there are no records`), where there is none."""
    model = model_named(name, known)
    if model is None:
        raise GpuliftError(
            f"{none} of {name or repr(name)}; known are {', '.join(known) or 'none'}"
        )
    return model


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
    for warning in run.warnings:
        say(f"warning: {warning}")
    return summarise(run, find_reference(results_folder(), run.records[0].context.slug))


def others(summary: Summary) -> list[Summary]:
    """The newest run of every GPU model among the committed results."""
    folders: dict[Path, list[Path]] = {}
    for folder in run_folders(results_folder()):
        if not folder.parent.name.startswith("cpu-"):
            folders.setdefault(folder.parent, []).append(folder)
    runs = [newest_run(of_model) for of_model in folders.values()]
    return [summary_of(run) for run in runs if run and run.folder != summary.run.folder]


def show(screen: Console, summary: Summary, beside: Sequence[Summary] = ()) -> None:
    """Roofs, speedups and what was not measured, on the terminal."""
    screen.print(tables.roofs(summary, beside))
    if summary.unit_costs:
        screen.print(tables.unit_costs(summary))
    known = errata.read_errata(results_folder() / errata.FILE)
    if any(one.worths for one in (summary, *beside)):
        screen.print(tables.worths(summary, beside, doubts_of([summary, *beside], known)))
    if summary.skipped:
        screen.print(tables.problems(summary.skipped, "Skipped"))
    if summary.broken:
        screen.print(tables.problems(summary.broken, "Failed"))
