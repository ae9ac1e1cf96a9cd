"""`gpulift export FORMAT` and `gpulift import FORMAT`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from gpulift.analysis.analyse import Analysis
from gpulift.analysis.choice import read_cases
from gpulift.commands.shared import analysis_of, summary_of
from gpulift.exchange import imported, mlflow, writing
from gpulift.exchange.csv_table import all_columns, csv_bytes
from gpulift.exchange.gbench_in import read_gbench
from gpulift.exchange.gbench_out import gbench_text
from gpulift.exchange.github import github_text
from gpulift.exchange.junit import junit_bytes
from gpulift.exchange.nvbench_in import read_nvbench
from gpulift.exchange.parquet import parquet_bytes
from gpulift.exchange.prometheus import prometheus_text
from gpulift.ground.arguments import Filter, SomeResults, named, require_free
from gpulift.ground.entry import say
from gpulift.ground.errors import FAILED, GpuliftError
from gpulift.records.read import Run, read_results
from gpulift.verdicts.cases import TECHNIQUE
from gpulift.verdicts.matching import selected

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"


CSV = "csv"
MLFLOW = "mlflow"
PARQUET = "parquet"
GITHUB = "github"
EXPORTS: Mapping[str, Callable[[Sequence[Run]], bytes]] = {
    CSV: csv_bytes,
    "gbench": lambda runs: gbench_text(runs).encode(),
    GITHUB: lambda runs: github_text(_judged(runs)).encode(),
    "junit": lambda runs: junit_bytes(_judged(runs).runs),
    PARQUET: parquet_bytes,
    "prometheus": lambda runs: prometheus_text(runs).encode(),
}
FORMATS = {**EXPORTS, MLFLOW: mlflow.write}  # the latter writes a folder
TABLES = frozenset({CSV, MLFLOW, PARQUET, "prometheus"})  # in which records of any runs are rows
IMPORTS: Mapping[str, Callable[[Sequence[Path], int | None], imported.Imported]] = {
    "gbench": read_gbench,
    "nvbench": read_nvbench,
}


def export(
    format: Annotated[str, typer.Argument(metavar="FORMAT", help=", ".join(sorted(FORMATS)))],
    results: SomeResults = None,
    out: Annotated[
        Path | None,
        typer.Option(
            parser=named,
            metavar="FILE",
            help="The file; standard output by default. Of mlflow a new folder.",
        ),
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

    Of a folder above run folders csv, parquet and prometheus have every case, as `report` does, and
    the others one run of each machine: full before quick, of most techniques, then the newest.
    """
    _require_known(format, FORMATS, "export")
    if not results:
        raise GpuliftError(f"export {format}: name RESULTS..., record files or run folders")
    if every_column and format != CSV:
        raise GpuliftError(f"--all-columns is of csv; {format} has no fewer: leave it out")
    if format in (MLFLOW, PARQUET) and out is None:
        what = "a folder" if format == MLFLOW else "a file"
        raise GpuliftError(f"{format} is no text: name {what} with --out")
    if out is not None and format != MLFLOW:
        require_free(out, force)
    read = read_cases if format in TABLES else read_results
    runs = selected(read(results), filter)
    if format not in (GITHUB, "junit"):  # these say the warnings themselves
        for warning in (warning for run in runs for warning in run.warnings):
            say(f"warning: {warning}")
    if not any(record.outcome == "ok" for run in runs for record in run.records):
        say("warning: nothing was measured in these records")
    if format == MLFLOW:
        assert out is not None, "asked for above"
        mlflow.write(runs, out)
        return
    content = all_columns(runs) if every_column else EXPORTS[format](runs)
    summary_file = os.environ.get(STEP_SUMMARY)
    if format == GITHUB and out is None and summary_file:
        writing.append(content, Path(summary_file))
        say("the step summary of this workflow was written")
    else:
        writing.deliver(content, out, force)


def import_(
    format: Annotated[str, typer.Argument(metavar="FORMAT", help=", ".join(IMPORTS))],
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            parser=named,
            metavar="FILES",
            help="Files of the same benchmarks, each from another process.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            parser=named, metavar="DIR", help="Folder for the records: a new one, or an empty one."
        ),
    ] = None,
    device: Annotated[
        int | None, typer.Option(help="Of an NVBench file with several devices: which one.")
    ] = None,
) -> None:
    """What another tool measured, as records to show, compare and export; nothing judges them.

    Rows that cannot be read are named with their reason; exits with 1 if none can be.
    """
    _require_known(format, IMPORTS, "import")
    if not files or out is None:
        raise GpuliftError(f"import {format}: name FILES... and a folder for records with --out")
    if device is not None and format != "nvbench":
        raise GpuliftError(f"--device: a file of {format} names no devices")
    found = IMPORTS[format](files, device)
    for line in found.unread:
        say(f"not read: {line}")
    measured = sum(record["outcome"] == "ok" for record in found.records)
    if found.unread and not measured:
        raise GpuliftError("nothing in these files could be read; nothing was written", FAILED)
    if not found.records:
        raise GpuliftError("these files hold no benchmarks; nothing was written")
    imported.write(found.records, out)
    say(_summary(len(files), found, len(found.records) - measured))
    typer.echo(out)


def _judged(runs: Sequence[Run]) -> Analysis:
    """GpuliftError where a run holds nothing of ours to judge."""
    for run in runs:
        kinds = sorted({record.kind for record in run.records})
        if TECHNIQUE not in kinds:
            raise GpuliftError(
                f"{run.folder}: holds no measurement that could be judged, only records of kind"
                f" {', '.join(kinds)}"
            )
    return analysis_of([summary_of(run) for run in runs])


def _summary(launches: int, found: imported.Imported, untimed: int) -> str:
    counts = {
        "launches": launches,
        "records": len(found.records),
        "of these without a time": untimed,
        "rows not read": len(found.unread),
    }
    return ", ".join(f"{what}: {count}" for what, count in counts.items() if count)


def _require_known(format: str, known: Mapping[str, object], command: str) -> None:
    if format not in known:
        raise GpuliftError(f"{command} {format!r}: the formats are {', '.join(known)}")
