"""`gpulift export FORMAT` and `gpulift import FORMAT`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Optional

import typer

from gpulift.arguments import Filter, SomeResults, named
from gpulift.commands import summary_of
from gpulift.compare.matching import selected
from gpulift.entry import say
from gpulift.errors import FAILED, GpuliftError
from gpulift.exchange import imported, writing
from gpulift.exchange.csv_table import csv_bytes
from gpulift.exchange.gbench_in import read_gbench
from gpulift.exchange.gbench_out import gbench_text
from gpulift.exchange.github import github_text
from gpulift.exchange.junit import junit_bytes
from gpulift.exchange.nvbench_in import read_nvbench
from gpulift.exchange.parquet import parquet_bytes
from gpulift.exchange.prometheus import prometheus_text
from gpulift.records.read import Run, read_results

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
PARQUET = "parquet"
GITHUB = "github"
EXPORTS: Mapping[str, Callable[[Sequence[Run]], bytes]] = {
    "csv": csv_bytes,
    "gbench": lambda runs: gbench_text(runs).encode(),
    GITHUB: lambda runs: github_text([summary_of(run) for run in runs]).encode(),
    "junit": lambda runs: junit_bytes([summary_of(run) for run in runs]),
    PARQUET: parquet_bytes,
    "prometheus": lambda runs: prometheus_text(runs).encode(),
}
TABLES = frozenset({"csv", PARQUET, "prometheus"})  # in which records of any runs are rows
IMPORTS: Mapping[str, Callable[[Sequence[Path], int | None], imported.Imported]] = {
    "gbench": read_gbench,
    "nvbench": read_nvbench,
}


def export(
    format: Annotated[str, typer.Argument(metavar="FORMAT", help=", ".join(EXPORTS))],
    results: SomeResults = None,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(parser=named, metavar="FILE", help="The file; standard output by default."),
    ] = None,
    filter: Filter = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file.")] = False,
) -> None:
    """Records for another tool. Exits with 0 whatever the records say.

    Of a folder above run folders csv, parquet and prometheus have every case, as `report` does, and
    the others one run of each machine: full before quick, of most techniques, then the newest.
    """
    _require_known(format, EXPORTS, "export")
    if not results:
        raise GpuliftError(f"export {format}: name RESULTS..., record files or run folders")
    if format == PARQUET and out is None:
        raise GpuliftError("parquet is no text: name a file with --out")
    if out is not None:
        writing.require_free(out, force)
    runs = selected(read_results(results, every_case=format in TABLES), filter)
    if format not in (GITHUB, "junit"):  # these say the warnings themselves
        for warning in (warning for run in runs for warning in run.warnings):
            say(f"warning: {warning}")
    if not any(record.outcome == "ok" for run in runs for record in run.records):
        say("warning: nothing was measured in these records")
    content = EXPORTS[format](runs)
    summary_file = os.environ.get(STEP_SUMMARY)
    if format == GITHUB and out is None and summary_file:
        writing.append(content, Path(summary_file))
        say("the step summary of this workflow was written")
    else:
        writing.deliver(content, out, force)


def import_(
    format: Annotated[str, typer.Argument(metavar="FORMAT", help=", ".join(IMPORTS))],
    files: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Argument(
            parser=named,
            metavar="FILES",
            help="Files of the same benchmarks, each from another process.",
        ),
    ] = None,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            parser=named, metavar="DIR", help="Folder for the records: a new one, or an empty one."
        ),
    ] = None,
    device: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Of an NVBench file with several devices: which one."),
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
