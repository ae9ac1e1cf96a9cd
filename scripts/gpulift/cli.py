"""The command line. Results go to stdout, progress and errors to stderr."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from gpulift import check as checks
from gpulift import doctor as doctors
from gpulift import machine, measuring, tables
from gpulift.compare import duet_rows
from gpulift.errors import FAILED, INTERRUPTED, NOTHING_RAN, OK, GpuliftError
from gpulift.machine import TechniqueInfo
from gpulift.model import Context
from gpulift.records import Run, newest_run, read_results, read_run, run_folders
from gpulift.reference import find_reference
from gpulift.summary import Summary, summarise

app = typer.Typer(
    name="gpulift",
    help="What each training technique is worth on your GPU.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

# typer reads these annotations at run time; Optional keeps them readable on Python 3.10.
Quick = Annotated[bool, typer.Option("--quick", help="Only the cases that tell most per second.")]
Out = Annotated[Optional[Path], typer.Option(help="Folder for the output.")]  # noqa: UP045
Filter = Annotated[
    Optional[str], typer.Argument(help="Regular expression on technique/case/arm; -- -RE excludes.")  # noqa: UP045
]
Gpu = Annotated[Optional[int], typer.Option(help="Index of the GPU; the first one by default.")]  # noqa: UP045
Json = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]
Results = Annotated[list[Path], typer.Argument(help="Record files, run folders or folders above.")]


@app.command()
def qualify(
    quick: Quick = False,
    out: Out = None,
    filter: Annotated[Optional[str], typer.Option(help="As for run.")] = None,  # noqa: UP045
    gpu: Gpu = None,
) -> None:
    """Measure this machine and report: how close to its roofs, and what pays on it."""
    from gpulift import report as reports

    context, infos = _examine(gpu)
    screen = tables.console()
    screen.print(tables.findings(doctors.examine(context, infos)))
    options = measuring.Options(filter=filter, quick=quick, gpu=gpu)
    measured = measuring.run(options, _results(), out, context, _say)
    if not any(measured.folder.glob("*.jsonl")) or measured.exit_code not in measuring.FINISHED:
        raise typer.Exit(measured.exit_code)
    summary = _summary(read_run(measured.folder))
    others = _others(summary) if context.gpu is None else []
    _show(summary, others)
    page = reports.write([summary, *others], measured.folder / "report")
    screen.print(f"records: {measured.folder}\nreport:  {page}", soft_wrap=True)
    nothing_ran = measured.exit_code == NOTHING_RAN and filter is None
    raise typer.Exit(OK if nothing_ran else measured.exit_code)  # a skip is a result


@app.command()
def run(
    filter: Filter = None,
    quick: Quick = False,
    launches: Annotated[Optional[int], typer.Option(help="Processes per case.")] = None,  # noqa: UP045
    arm_time: Annotated[
        Optional[float], typer.Option(help="Seconds per arm, case and launch.")  # noqa: UP045
    ] = None,
    precision: Annotated[
        Optional[float], typer.Option(help="Stop at this relative half-width.")  # noqa: UP045
    ] = None,
    out: Out = None,
    seed: Annotated[Optional[int], typer.Option(help="Seed of order and data.")] = None,  # noqa: UP045
    gpu: Gpu = None,
) -> None:
    """Measure and append records; goes on with an unfinished run of the same command."""
    options = measuring.Options(filter, quick, launches, arm_time, precision, seed, gpu)
    measuring.require_known(options)
    context = machine.describe(machine.find_bench(), gpu)
    measured = measuring.run(options, _results(), out, context, _say)
    if measured.exit_code in measuring.FINISHED:
        typer.echo(measured.folder)
    raise typer.Exit(measured.exit_code)


@app.command("list")
def list_techniques(filter: Filter = None, as_json: Json = False) -> None:
    """What can be measured, and whether it can run on this machine."""
    context, infos = _examine(None)
    chosen = [info for info in infos if _matches(info, filter)]
    if not chosen:
        raise GpuliftError(f"no technique matches {filter!r}; `list` without a filter shows all")
    if as_json:
        _print_json([{**asdict(one), "not_here": one.not_here(context)} for one in chosen])
    else:
        tables.console().print(tables.techniques(chosen, context))


@app.command()
def doctor(as_json: Json = False) -> None:
    """What can run here and why the rest cannot, with the remedy."""
    context, infos = _examine(None)
    found = doctors.examine(context, infos)
    if as_json:
        _print_json([asdict(one) for one in found])
    else:
        tables.console().print(tables.findings(found))


@app.command()
def report(results: Results, out: Out = None) -> None:
    """One HTML page, its Markdown twin and figures, from records alone."""
    from gpulift import report as reports

    found = read_results(results)
    page = reports.write([_summary(one) for one in found], out or _report_folder(results[0]))
    typer.echo(page)


@app.command()
def check(
    results: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Argument(help="Folders of results; the checkout's by default."),
    ] = None,
) -> None:
    """Validate committed records; every complaint is a line, and then the exit code is 1."""
    schema = _results() / "schema" / "record.schema.json"
    count, complaints = checks.check_results(results or [_results()], schema)
    for complaint in complaints:
        typer.echo(complaint, err=True)
    typer.echo(f"{count} records checked, {len(complaints)} complaints")
    raise typer.Exit(FAILED if complaints else OK)


@app.command()
def duet(results: Results, as_json: Json = False) -> None:
    """Head build against base build: ratio, interval, and how much it varies over launches."""
    rows = duet_rows(read_results(results))
    if not rows:
        raise GpuliftError(
            "there are no duet records in these results; make some with --head, --base"
        )
    if as_json:
        _print_json([asdict(row) for row in rows])
    else:
        tables.console().print(tables.duets(rows))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; errors become one line on stderr."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = app(args=given or ["--help"], standalone_mode=False)
    except GpuliftError as error:
        return _fail(str(error), error.exit_code)
    except typer.TyperException as error:
        return _fail(error.format_message(), error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        return _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        return FAILED
    return code if isinstance(code, int) else OK


def _fail(message: str, code: int) -> int:
    _say(f"error: {' '.join(message.split())}")
    return code


def _say(message: str) -> None:
    typer.echo(f"gpulift: {message}", err=True)


def _examine(gpu: int | None) -> tuple[Context, list[TechniqueInfo]]:
    bench = machine.find_bench()
    return machine.describe(bench, gpu), machine.catalogue(bench)


def _results() -> Path:
    return machine.checkout_root() / "results"


def _summary(run: Run) -> Summary:
    for warning in run.warnings:
        _say(f"warning: {warning}")
    return summarise(run, find_reference(_results(), run.records[0].context.slug))


def _others(summary: Summary) -> list[Summary]:
    """The newest run of every GPU model among the committed results."""
    folders: dict[Path, list[Path]] = {}
    for folder in run_folders(_results()):
        if not folder.parent.name.startswith("cpu-"):
            folders.setdefault(folder.parent, []).append(folder)
    runs = [newest_run(found) for found in folders.values()]
    return [_summary(run) for run in runs if run and run.folder != summary.run.folder]


def _show(summary: Summary, others: Sequence[Summary]) -> None:
    screen = tables.console()
    screen.print(tables.roofs(summary, others))
    if summary.unit_costs:
        screen.print(tables.unit_costs(summary))
    screen.print(tables.worths(summary, others))
    if summary.skipped:
        screen.print(tables.problems(summary.skipped, "Skipped"))
    if summary.broken:
        screen.print(tables.problems(summary.broken, "Failed"))


def _report_folder(results: Path) -> Path:
    return (results.parent if results.is_file() else results) / "report"


def _matches(info: TechniqueInfo, filter: str | None) -> bool:
    if filter is None:
        return True
    wanted = not filter.startswith("-")
    try:
        pattern = re.compile(filter.removeprefix("-"))
    except re.error as error:
        raise GpuliftError(f"{filter!r} is not a regular expression: {error}") from None
    names = [f"{info.id}/{case.id}/{arm}" for case in info.cases for arm in info.arms]
    return any(bool(pattern.search(name)) == wanted for name in names or [info.id])


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, allow_nan=False, default=str))
