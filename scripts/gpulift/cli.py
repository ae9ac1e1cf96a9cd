"""The command line. Results go to stdout, progress and errors to stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Optional

import typer
from rich.console import Console
from rich.progress import track

from gpulift import bench as benching
from gpulift import checking as checks
from gpulift import doctor as doctors
from gpulift import machine, measuring, tables, techniques, terminal
from gpulift.analysis.duets import duet_rows
from gpulift.arguments import Results, Wide, named, time_s
from gpulift.citing.command import cite, show
from gpulift.citing.verify import verify
from gpulift.claims.command import claims
from gpulift.commands import (
    Json,
    Out,
    Quick,
    examine,
    known_techniques,
    print_json,
    results_folder,
)
from gpulift.compare.command import compare
from gpulift.costing import cost
from gpulift.entry import call, make_app, say
from gpulift.errors import FAILED, OK, GpuliftError
from gpulift.exchange.command import export, import_
from gpulift.gate.certify.command import certify
from gpulift.gate.command import gate
from gpulift.machine import TechniqueInfo
from gpulift.publishing import publish
from gpulift.qualify import reference_command
from gpulift.qualify.command import qualify
from gpulift.qualify.siblings_command import siblings
from gpulift.quick import with_default
from gpulift.records.model import Context
from gpulift.records.read import read_results
from gpulift.report.command import report
from gpulift.submitting import submit
from gpulift.watch.command import watch

app = make_app()

# typer reads these annotations at run time; Optional keeps them readable on Python 3.10.
Filter = Annotated[
    Optional[str], typer.Argument(help="Regular expression on technique/case/arm; -- -RE excludes.")  # noqa: UP045
]

Gpus = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--gpus",
        "--gpu",
        metavar="INDEX|UUID,...",
        help="The GPU by index or UUID, or several: 0,1; the first by default.",
    ),
]
Scratch = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        parser=named, metavar="DIR", help="Folder on the disk that cases with files measure."
    ),
]
Python = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(help="Interpreter or virtual environment of Python arms; else the set-up's."),
]
Techniques = Annotated[
    Optional[list[Path]],  # noqa: UP045
    typer.Option(
        parser=named,
        metavar="DIR",
        help="Folder of techniques of your own; may be repeated. Else those of GPULIFT_TECHNIQUES.",
    ),
]

app.command()(qualify)
app.command()(report)
app.command()(compare)
app.command()(gate)
app.command()(certify)
app.command()(show)
app.command()(cite)
app.command()(verify)
app.command()(export)
app.command("import")(import_)
app.command()(claims)
app.command()(cost)
app.command()(watch)
app.command()(publish)
app.command()(submit)
app.command()(siblings)
app.add_typer(reference_command.app)


@app.command()
def run(
    filter: Filter = None,
    quick: Quick = None,
    launches: Annotated[Optional[int], typer.Option(help="Processes per case.")] = None,  # noqa: UP045
    arm_time: Annotated[
        Optional[float], typer.Option(help="Seconds per arm, case and launch.")  # noqa: UP045
    ] = None,
    precision: Annotated[
        Optional[float], typer.Option(help="Stop at this relative half-width.")  # noqa: UP045
    ] = None,
    out: Out = None,
    seed: Annotated[Optional[int], typer.Option(help="Seed of order and data.")] = None,  # noqa: UP045
    gpus: Gpus = None,
    python: Python = None,
    scratch: Scratch = None,
    techniques: Techniques = None,
    timeout: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(
            help="Seconds after which a silent case is stopped, 120 by default; whole training"
            " steps have eight times as long."
        ),
    ] = None,
) -> None:
    """Measure and append records; goes on with an unfinished run of the same command."""
    options = measuring.Options(
        filter,
        quick is not None,
        launches,
        arm_time,
        precision,
        seed,
        python=_interpreter(python),
        scratch=scratch,
        timeout=timeout,
    )
    options, context = _on_gpus(options, gpus)
    options = replace(options, more_modules=_prepared(techniques))
    if quick is not None:
        other = options.python is not None  # which may have other packages
        known = (
            machine.catalogue(machine.find_bench(), options.more_modules)
            if other
            else known_techniques(options.more_modules)
        )
        options = measuring.within(time_s("--quick", quick), options, known, context, say)
    measured = measuring.run(options, results_folder(), out, context, say)
    if measured.exit_code in measuring.FINISHED and measured.folder.exists():
        typer.echo(measured.folder)
    raise typer.Exit(measured.exit_code)


@app.command()
def bench(
    script: Annotated[
        Path,
        typer.Argument(parser=named, metavar="SCRIPT", help="A Python file with ARMS and make."),
    ],
    out: Out = None,
    launches: Annotated[int, typer.Option(help="Processes per case.")] = 3,
    arm_time: Annotated[
        float, typer.Option(help="Seconds per arm, case and launch.")
    ] = benching.ARM_TIME_S,
    gpus: Gpus = None,
    python: Python = None,
    scratch: Scratch = None,
    wide: Wide = False,
) -> None:
    """Measure the arms of one Python file against its first; writes records and a report."""
    with benching.prepared(script) as modules:
        options = measuring.Options(
            launches=launches,
            arm_time=arm_time,
            python=_interpreter(python),
            scratch=scratch,
            modules=modules,
        )
        options, context = _on_gpus(options, gpus)
        measured = measuring.run(options, Path(benching.RESULTS), out, context, say)
    if measuring.kept_records(measured.folder):
        benching.show(measured.folder, wide)
    raise typer.Exit(measured.exit_code)


@app.command("list")
def list_techniques(
    filter: Filter = None,
    techniques: Techniques = None,
    wide: Wide = False,
    as_json: Json = False,
) -> None:
    """What can be measured, and whether it can run on this machine; of each technique the cases
    that the filter selects."""
    context, infos = examine(None, _prepared(techniques))
    matches = machine.matcher(filter)
    chosen = [one for info in infos if (one := _selected(info, matches))]
    if not chosen:
        raise GpuliftError(f"no technique matches {filter!r}; `list` without a filter shows all")
    if as_json:
        print_json([{**asdict(one), "not_here": one.not_here(context)} for one in chosen])
    else:
        terminal.console(wide=wide).print(tables.techniques(chosen, context))


@app.command()
def doctor(as_json: Json = False) -> None:
    """What can run here and why the rest cannot, with the remedy."""
    context, infos = examine(None)
    found = doctors.examine(context, infos)
    if as_json:
        print_json([asdict(one) for one in found])
    else:
        terminal.console().print(tables.findings(found))


@app.command()
def check(
    results: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Argument(
            parser=named,
            metavar="RESULTS",
            help="Folders of results; the checkout's by default.",
        ),
    ] = None,
) -> None:
    """Validate committed records and certificates; every complaint is a line, and then the exit
    code is 1."""
    found = checks.check_results(results or [results_folder()], _shown)
    for line in (*found.notes, *found.complaints):
        typer.echo(line, err=True)
    typer.echo(
        f"{found.records} records and {found.certificates} certificates checked,"
        f" {len(found.complaints)} complaints"
    )
    raise typer.Exit(FAILED if found.complaints else OK)


def _shown(folders: Sequence[Path]) -> Iterable[Path]:
    """How far a check is, where a person watches."""
    screen = Console(stderr=True)
    return track(
        folders, "checking", console=screen, transient=True, disable=not screen.is_terminal
    )


@app.command()
def duet(results: Results, wide: Wide = False, as_json: Json = False) -> None:
    """Head build against base build: ratio, interval, and how much it varies over launches."""
    rows = duet_rows(read_results(results))
    if not rows:
        raise GpuliftError(
            "there are no duet records in these results; make some with --head, --base"
        )
    if as_json:
        print_json([asdict(row) for row in rows])
    else:
        terminal.console(wide=wide).print(tables.duets(rows))


def _interpreter(named: str | None) -> Path | None:
    return None if named is None else machine.find_interpreter("--python", named)


def _prepared(named: Sequence[Path] | None) -> tuple[Path, ...]:
    folders = techniques.asked(named)
    return tuple(techniques.prepare(folders, say)) if folders else ()


def _on_gpus(options: measuring.Options, gpus: str | None) -> tuple[measuring.Options, Context]:
    """With the GPUs that were named, and what is known of the first; refuses what cannot be."""
    measuring.require_known(options)
    indices = () if gpus is None else machine.gpus_named(machine.find_bench(), gpus)
    context = machine.describe_all(machine.find_bench(), indices)
    if len(indices) == 1:
        return replace(options, gpu=indices[0]), context
    return replace(options, gpus=indices), context


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; errors become one line on stderr."""
    given = sys.argv[1:] if arguments is None else arguments
    return call(app, with_default(given) or ["--help"])


def _selected(info: TechniqueInfo, matches: Callable[..., bool]) -> TechniqueInfo | None:
    """The technique with the cases that `run` with the same filter would measure; one whose cases
    are not known, since it is unavailable, by its own name."""
    if not (info.cases and info.arms):
        return info if matches(info.id) else None
    cases = tuple(
        case
        for case in info.cases
        for name in ["/".join(part for part in (info.id, case.id) if part)]
        if any(matches(info.id, name, f"{name}/{arm}") for arm in info.arms)
    )
    return replace(info, cases=cases) if cases else None
