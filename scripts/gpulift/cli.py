"""The command line. Results go to stdout, progress and errors to stderr.

Of the commands that one is imported which is named: none waits for what others import."""

from __future__ import annotations

import os
import sys
from collections.abc import Container, Sequence
from copy import copy
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from gpulift.commands.old import rewritten
from gpulift.ground import later, place
from gpulift.ground.arguments import with_default
from gpulift.ground.entry import COMPLETION, call, make_app
from gpulift.ground.errors import GpuliftError

TO_SHELLS = ("--install-completion", "--show-completion")
SHELL_IS_NAMED = "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"  # else typer takes no name of one
COMPLETED = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")  # the line that a shell completes
OLD = "old"  # the use of a command that is called otherwise now
LAUNCHERS = ("setup", "test", "wheel")  # commands that ./gpulift has without us
PLACES = {  # module and function, or group, of commands that are not both
    "export": "exchange:export",
    "fleet": "fleet:app",
    "history": "history:app",
    "list": "listing:list_techniques",
    "ray": "ray_run:app",
    "reference": "reference:app",
    "run": "running:run",
    "show": "citing:show",
    "verify": "verify_file:verify",
}


def _tell_version(asked: bool) -> None:
    if not asked:
        return
    from gpulift.analysis.conditions import commit
    from gpulift.engine import machine, schema
    from gpulift.verdicts.decision import DECISION_METHOD

    try:
        built = commit(machine.describe(machine.find_bench()).build)
    except GpuliftError:
        built = "not built"
    methods = f"method {schema.METHOD}, decision method {DECISION_METHOD}"
    typer.echo(f"gpulift {built}, schema {schema.VERSION}, {methods}")
    raise typer.Exit


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


def command_lines(old: bool = False) -> dict[str, str]:
    """Of each command its line of help, from the table that ./gpulift reads; or of those of before
    what they are called now."""
    rows = table("commands.tsv")[::-1]  # of several of a name the first counts
    return {usage.split()[0]: line for usage, _, use, line in rows if (use == OLD) is old}


def table(name: str) -> list[list[str]]:
    """Its lines, parted."""
    lines = Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines]


def examples_of(command: str) -> str:
    """What ends its help: two calls, and exit codes that are its own."""
    ((*calls, codes),) = (row for name, *row in table("examples.tsv") if name == command)
    shown = "".join(f"\n  {place.PROGRAM} {call}" for call in calls)
    told = f"\n\nExit codes: 0 ok, {codes}, 2 usage." if codes else ""
    return f"\b\nExamples:{shown}{told}"


def app_of(words: Container[str]) -> typer.Typer:
    """The command line, whole in those commands that are among the words; of the others it knows
    name and line."""
    app = make_app(completion=True)
    app.callback()(options)
    for name, line in reversed(command_lines().items()):
        if name in LAUNCHERS and COMPLETION not in os.environ:
            continue
        if name not in words or name in LAUNCHERS:
            app.command(name, short_help=line)(_not_named)
            continue
        found = _found(name)
        if not isinstance(found, typer.Typer):
            app.command(name, short_help=line, epilog=examples_of(name))(later.refusing(found))
            continue
        group = copy(found)  # what a call makes of it is that call's
        group.registered_commands = [copy(one) for one in found.registered_commands]
        for one in group.registered_commands:
            assert one.callback is not None  # what made it
            one.epilog = examples_of(f"{name} {one.name or one.callback.__name__}")
            one.callback = later.refusing(one.callback)
        app.add_typer(group, short_help=line)
    return app


def _found(name: str) -> Any:
    module, _, function = PLACES.get(name, f"{name}:{name}").partition(":")
    return getattr(import_module(f"gpulift.commands.{module}"), function)


def _not_named() -> None:
    """A command that is known by its line alone."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; errors become one line on stderr."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] and given[0] in TO_SHELLS:
        os.environ[SHELL_IS_NAMED] = "1"
        named_shell = given if given[1:] else [*given, _shell()]
        return call(app_of(()), named_shell, "gpulift")  # as a shell completes `./gpulift`, too
    given = rewritten(given, command_lines(old=True))
    completed = " ".join(os.environ.get(name, "") for name in COMPLETED).split()[1:2]
    app = app_of(completed if COMPLETION in os.environ else given[:1])
    return call(app, with_default(given) or ["--help"], place.PROGRAM)


def _shell() -> str:
    """That from which we are called: images and cron have one that completes nothing."""
    import shellingham  # typer's own

    try:
        return str(shellingham.detect_shell()[0])
    except (shellingham.ShellDetectionFailure, OSError):
        return ""
