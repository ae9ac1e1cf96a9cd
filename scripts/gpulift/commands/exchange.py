"""`gpulift export FORMAT`."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from gpulift.analysis.analyse import Analysis, JudgedRun, by_machine, judged
from gpulift.analysis.choice import read_cases
from gpulift.analysis.machine import rows
from gpulift.analysis.reference import find_reference
from gpulift.analysis.summary import summarise
from gpulift.commands.shared import analysis_of, results_folder, summary_of
from gpulift.exchange import writing
from gpulift.exchange.csv_table import all_columns, csv_bytes
from gpulift.exchange.gbench_out import gbench_text
from gpulift.exchange.github import github_text
from gpulift.exchange.prometheus import prometheus_text
from gpulift.ground.arguments import Filter, SomeResults, named, require_free
from gpulift.ground.entry import say
from gpulift.ground.errors import GpuliftError
from gpulift.records.read import Run, read_results
from gpulift.verdicts import table
from gpulift.verdicts.cases import TECHNIQUE
from gpulift.verdicts.matching import selected

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"


CSV = "csv"
GITHUB = "github"
JUNIT = "junit"
EXPORTS: Mapping[str, Callable[[Sequence[Run], Collection[Path]], bytes]] = {
    CSV: lambda runs, _: csv_bytes(runs),
    "gbench": lambda runs, _: gbench_text(runs).encode(),
    GITHUB: lambda runs, _: github_text(_judged(runs)).encode(),
    JUNIT: lambda runs, named: table.junit(
        *(rows.table_of(one.summary, one.checks) for one in _checked(_techniques(runs), named))
    ).encode(),
    "prometheus": lambda runs, named: prometheus_text(
        runs, _checked([run for run in runs if _is_ours(run)], named)
    ).encode(),
}
TABLES = frozenset({CSV, JUNIT, "prometheus"})  # in which records of any runs are rows


def export(
    format: Annotated[str, typer.Argument(metavar="FORMAT", help=", ".join(sorted(EXPORTS)))],
    results: SomeResults = None,
    out: Annotated[
        Path | None,
        typer.Option(parser=named, metavar="FILE", help="The file; standard output by default."),
    ] = None,
    filter: Filter = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file.")] = False,
    every_column: Annotated[
        bool,
        typer.Option(
            "--all-columns", help="Of csv: all that a record says, and a row for each launch."
        ),
    ] = False,
) -> None:
    """Records for another tool. Exits with 0 whatever the records say.

    Of a folder above run folders csv, junit and prometheus have every case, as `report` does, and
    the others one run of each machine: full before quick, of most techniques, then the newest. A
    machine is judged by the newest of each check.
    """
    if format not in EXPORTS:
        raise GpuliftError(f"export {format!r}: the formats are {', '.join(EXPORTS)}")
    if not results:
        raise GpuliftError(f"export {format}: name RESULTS..., record files or run folders")
    if every_column and format != CSV:
        raise GpuliftError(f"--all-columns is of csv; {format} has no fewer: leave it out")
    if out is not None:
        require_free(out, force)
    read = read_cases if format in TABLES else read_results
    runs = selected(read(results), filter)
    if format != GITHUB:  # which says the warnings itself
        for warning in (warning for run in runs for warning in run.warnings):
            say(f"warning: {warning}")
    if not any(record.outcome == "ok" for run in runs for record in run.records):
        say("warning: nothing was measured in these records")
    content = all_columns(runs) if every_column else EXPORTS[format](runs, results)
    summary_file = os.environ.get(STEP_SUMMARY)
    if format == GITHUB and out is None and summary_file:
        writing.append(content, Path(summary_file))
        say("the step summary of this workflow was written")
    else:
        writing.deliver(content, out, force)


def _is_ours(run: Run) -> bool:
    return any(record.kind == TECHNIQUE for record in run.records)


def _techniques(runs: Sequence[Run]) -> Sequence[Run]:
    """GpuliftError where a run holds nothing of ours to judge."""
    for run in (run for run in runs if not _is_ours(run)):
        kinds = sorted({record.kind for record in run.records})
        raise GpuliftError(
            f"{run.folder}: holds no measurement that could be judged, only records of kind"
            f" {', '.join(kinds)}"
        )
    return runs


def _judged(runs: Sequence[Run]) -> Analysis:
    return analysis_of([summary_of(run) for run in _techniques(runs)])


def _checked(runs: Sequence[Run], named: Collection[Path]) -> list[JudgedRun]:
    """Machines by their runs; a run that was named by itself."""
    known = {run.model: find_reference(results_folder(), run.model) for run in runs}
    every = [judged(summarise(run, known[run.model])) for run in runs]
    return by_machine(every, {run.folder for run in runs if {run.folder, *_files(run)} & {*named}})


def _files(run: Run) -> set[Path]:
    return {record.file for record in run.records}
