"""The command line. Results go to stdout, progress and errors to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.progress import track

from gpulift.analysis.conditions import commit
from gpulift.commands import bench as benching
from gpulift.commands import check as checks
from gpulift.commands import fleet as fleet_command
from gpulift.commands import history as history_command
from gpulift.commands import instrument as instruments
from gpulift.commands import ray_run
from gpulift.commands import reference as reference_command
from gpulift.commands.advise import advise
from gpulift.commands.bisect import bisect
from gpulift.commands.citing import cite, show
from gpulift.commands.claims import claims
from gpulift.commands.compare import compare
from gpulift.commands.cost import cost
from gpulift.commands.exchange import export
from gpulift.commands.gate import gate
from gpulift.commands.gate_options import with_command
from gpulift.commands.listing import list_techniques
from gpulift.commands.predictions import predictions
from gpulift.commands.publish import publish
from gpulift.commands.qualify import qualify
from gpulift.commands.report import report
from gpulift.commands.running import Gpus, Python, Scratch, interpreter, on_gpus, run
from gpulift.commands.selecting import Axes
from gpulift.commands.shared import (
    Out,
    examine,
    print_json,
    results_folder,
)
from gpulift.commands.siblings import siblings
from gpulift.commands.submit import submit
from gpulift.commands.verify import verify
from gpulift.commands.watch import watch
from gpulift.engine import doctor as doctors
from gpulift.engine import machine, measuring, schema
from gpulift.engine.machine import TechniqueInfo
from gpulift.engine.quick import with_default
from gpulift.ground import place, terminal
from gpulift.ground.arguments import Json, Results, Wide, named
from gpulift.ground.entry import COMPLETION, call, make_app, say, tell
from gpulift.ground.errors import FAILED, OK, GpuliftError
from gpulift.ground.text import counted, some
from gpulift.records.model import Context
from gpulift.records.read import read_results
from gpulift.report import tables
from gpulift.verdicts.decision import DECISION_METHOD
from gpulift.verdicts.duets import duet_rows

app = make_app(completion=True)
TO_SHELLS = ("--install-completion", "--show-completion")
SHELL_IS_NAMED = "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"  # else typer takes no name of one
LAUNCHERS = ("setup", "test", "wheel")  # commands that ./gpulift has without us

app.command()(run)
app.command()(qualify)
app.command()(report)
app.command()(compare)
app.command()(gate)
app.command()(bisect)
app.command()(show)
app.command()(cite)
app.command()(verify)
app.command()(export)
app.command()(claims)
app.command()(cost)
app.command()(predictions)
app.command()(watch)
app.command()(advise)
app.command()(publish)
app.command()(submit)
app.command()(siblings)
app.command("list")(list_techniques)
app.add_typer(reference_command.app)
app.add_typer(history_command.app)
app.add_typer(fleet_command.app)
app.add_typer(ray_run.app)


def _tell_version(asked: bool) -> None:
    if not asked:
        return
    try:
        built = commit(machine.describe(machine.find_bench()).build)
    except GpuliftError:
        built = "not built"
    methods = f"method {schema.METHOD}, decision method {DECISION_METHOD}"
    typer.echo(f"gpulift {built}, schema {schema.VERSION}, {methods}")
    raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_tell_version,
            is_eager=True,
            help="Commit of the build, schema of records, methods of measuring and of deciding.",
        ),
    ] = False,
) -> None:
    """What each training technique is worth on your GPU."""


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
    axes: Axes = None,
    timeout: Annotated[
        float,
        typer.Option(
            help="Seconds after which a silent arm is stopped; whole training steps have eight"
            " times as long."
        ),
    ] = benching.TIMEOUT_S,
    wide: Wide = False,
) -> None:
    """Measure the arms of one Python file against its first; writes records and a report."""
    with benching.prepared(script) as modules:
        options = measuring.Options(
            launches=launches,
            arm_time=arm_time,
            python=interpreter(python),
            scratch=scratch,
            modules=modules,
            axes=tuple(axes or ()),
            timeout=timeout,
        )
        options, context = on_gpus(options, gpus)
        measured = measuring.run(options, place.RESULTS, out, context, say, reported=True)
    if measuring.kept_records(measured.folder):
        benching.show(measured.folder, wide)
    raise typer.Exit(measured.exit_code)


@app.command()
def doctor(
    instrument: Annotated[
        bool, typer.Option("--instrument", help="Measure what is known beforehand: is it found?")
    ] = False,
    as_json: Json = False,
) -> None:
    """What can run here and why the rest cannot, with the remedy.

    With --instrument whether what is measured here is true: exit code 0 if it is, 3 if not, 5 where
    the machine is too busy to tell."""
    context, infos = examine(None)
    if instrument:
        _examine_instrument(context, infos, as_json)
    found = doctors.examine(context, infos)
    if as_json:
        print_json([asdict(one) for one in found])
    else:
        terminal.console().print(tables.findings(found))


def _examine_instrument(
    context: Context, infos: Sequence[TechniqueInfo], as_json: bool
) -> NoReturn:
    checks = instruments.examine(context, infos, say)
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        terminal.console().print(instruments.table(checks))
    raise typer.Exit(instruments.exit_code(checks))


@app.command()
def check(
    results: Annotated[
        list[Path] | None,
        typer.Argument(
            parser=named,
            metavar="RESULTS",
            help="Folders of results; the checkout's by default.",
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Name every run that is told of, not three of a kind.")
    ] = False,
) -> None:
    """Validate committed records and certificates; every complaint is a line, and then the exit
    code is 1. Runs that are unfinished, or beside which others worked, are told of."""
    found = checks.check_results(results or [results_folder()], _shown)
    for line in found.complaints:
        tell(line)
    for told, runs in found.doubted.items():
        if runs:
            names = some(runs, len(runs) if every else checks.NAMED)
            typer.echo(f"{counted(len(runs), 'run')} {told}: {names}")
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


def command_lines() -> dict[str, str]:
    """Of each command its line of help, from the table that ./gpulift reads."""
    table = Path(__file__).with_name("commands.tsv").read_text(encoding="utf-8").splitlines()
    rows = [row.split("\t") for row in reversed(table)]  # of several of a name the first counts
    return {usage.split()[0]: line for usage, _, line in rows}


def _name_commands() -> None:
    lines = command_lines()
    for command in app.registered_commands:
        name = str(command.name or getattr(command.callback, "__name__", ""))
        command.short_help = lines[name.split()[0]]
    for group in app.registered_groups:
        group.short_help = lines[str(group.typer_instance and group.typer_instance.info.name)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; errors become one line on stderr."""
    given = sys.argv[1:] if arguments is None else arguments
    if COMPLETION in os.environ:
        for command in LAUNCHERS:
            app.command(command)(lambda: None)
    _name_commands()
    if given[:1] and given[0] in TO_SHELLS:
        os.environ[SHELL_IS_NAMED] = "1"
        named_shell = given if given[1:] else [*given, _shell()]
        return call(app, named_shell, "gpulift")  # as a shell completes `./gpulift`, too
    return call(app, with_command(with_default(given)) or ["--help"], place.PROGRAM)


def _shell() -> str:
    """That from which we are called: images and cron have one that completes nothing."""
    import shellingham  # typer's own

    try:
        return str(shellingham.detect_shell()[0])
    except (shellingham.ShellDetectionFailure, OSError):
        return ""
