"""Which options of `gpulift gate` fit together, how they were called before, and which of them a
certificate keeps."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

import typer

from gpulift.commands.shared import options_given
from gpulift.gate.evidence import Origin
from gpulift.ground.entry import say
from gpulift.ground.errors import GpuliftError

OF_BOTH = {  # by their names on the command line
    "base_python": "--base-python",
    "head_python": "--head-python",
    "budget": "--budget",
    "thresholds_file": "--thresholds",
}
OF_COMMANDS = {
    "with_tool": "--with",
    "metric": "--metric",
    "higher": "--higher",
    "setup": "--setup",
    "plant": "--plant",
    "threshold": "--threshold",
    "timeout": "--timeout",
    "equal": "--same",
    "tolerance": "--tolerance",
}
OF_TECHNIQUES = {"filter": "--filter", "all_cases": "--all", "arm_time": "--arm-time"}
AGAIN = {**OF_BOTH, **OF_COMMANDS, **OF_TECHNIQUES}  # what a certificate keeps of a command line
MEASURED_WITH = {  # what a replay takes from its folder
    "base": "--base",
    "head": "--head",
    "same": "the filter",
    "out": "--out",
    "seed": "--seed",
    "gpu": "--gpu",
    "command": "the command",
    **AGAIN,
}
# Until the release of 2026-12: forms, alone and with a file, and tools, with what they run.
OLD_FORMS, OLD_FILES = ("--json", "--github", "--markdown"), ("--junit", "--bmf")
OLD_TOOLS = ("--gbench", "--nvbench", "--pytest")


def rewritten(arguments: Sequence[str]) -> list[str]:
    """The command line as it is written now, in which what follows `--` is a command behind an
    empty filter: unless it begins with a hyphen, as a filter that leaves something out does."""
    given = list(arguments)
    if given[:1] != ["gate"]:
        return given
    end = given.index("--") if "--" in given else len(given)
    made, command = _options(given[:end])
    behind = [*command, *given[end + 1 :]]
    tool = any(option.partition("=")[0] == "--with" for option in made)
    if behind and (tool or not behind[0].startswith("-")):
        return [*made, "--", "", *behind]
    return [*made, *given[end:]]


def _options(given: Sequence[str]) -> tuple[list[str], list[str]]:
    """Of options of before those of today, and what a tool runs."""
    made: list[str] = []
    command: list[str] = []
    words = iter(given)
    for word in words:
        name, equals, value = word.partition("=")
        form = name.removeprefix("--")
        if name in OLD_FORMS and not equals:
            made += ["--format", form]
        elif name in OLD_FILES:
            made += ["--format", f"{form}={value if equals else next(words, '')}"]
        elif name in OLD_TOOLS:
            command = [value if equals else next(words, "")]
            made += ["--with", form]
        else:
            made.append(word)
            continue
        if name != "--json":  # as other commands have it
            told = f"--with {form} -- {command[0]}" if name in OLD_TOOLS else " ".join(made[-2:])
            say(f"{name} is called {told} now, and goes with the next release")
    return made, command


def origin_of(context: typer.Context, command: Sequence[str] | None) -> Origin:
    """What was asked for, but for the commits, which are not known yet."""
    given = {name: context.params[name] for name in AGAIN if options_given(context, {name: ""})}
    options = {
        AGAIN[name]: tuple("" if one is True else str(one) for one in value)
        for name, held in given.items()
        for value in [held if isinstance(held, list) else [held]]
    }
    positional = context.params["same"]
    script = positional or "" if not command else ""
    began_at = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return Origin("", "", options, script, tuple(command or ()), {}, began_at)


def require_fitting(context: typer.Context, replay: bool, of_command: bool) -> None:
    """Refuses what a replay, or the other kind of gate, would have to ignore."""
    if replay and (given := options_given(context, MEASURED_WITH)):
        raise GpuliftError(
            "--replay judges what its folder holds and measures nothing: leave out"
            f" {', '.join(given)}"
        )
    if given := options_given(context, OF_TECHNIQUES if of_command else OF_COMMANDS):
        what = "gpulift's own techniques" if of_command else "a command behind --"
        raise GpuliftError(f"{', '.join(given)}: for a gate of {what} alone")
