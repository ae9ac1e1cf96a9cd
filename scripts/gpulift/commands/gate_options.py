"""Which options of `gpulift gate` fit together, and which of them a certificate keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone

import typer

from gpulift.commands.shared import options_given
from gpulift.gate.evidence import Origin
from gpulift.ground.errors import GpuliftError

# What a replay takes from its folder, by its name on the command line.
MEASURED_WITH = {
    "base": "--base",
    "head": "--head",
    "base_python": "--base-python",
    "head_python": "--head-python",
    "same": "the filter",
    "filter": "--filter",
    "all_cases": "--all",
    "budget": "--budget",
    "out": "--out",
    "seed": "--seed",
    "gpu": "--gpu",
    "arm_time": "--arm-time",
    "thresholds_file": "--thresholds",
    "command": "the command",
    "gbench": "--gbench",
    "nvbench": "--nvbench",
    "pytest": "--pytest",
}
OF_JOBS = {  # what only a gate of somebody's command takes
    "metric": "--metric",
    "higher": "--higher",
    "setup": "--setup",
    "plant": "--plant",
    "threshold": "--threshold",
    "timeout": "--timeout",
    "equal": "--same",
    "tolerance": "--tolerance",
}
OF_TECHNIQUES = {
    "filter": "--filter",
    "all_cases": "--all",
    "arm_time": "--arm-time",
    "explain": "--explain",
}
TOOLS = ("--gbench", "--nvbench", "--pytest")
NOT_AGAIN = ("base", "head", "same", "command", "out", "seed", "gpu", "explain")
AGAIN = {  # what a certificate keeps of a command line, for a second measurement
    name: option
    for name, option in {**MEASURED_WITH, **OF_JOBS, **OF_TECHNIQUES}.items()
    if name not in NOT_AGAIN
}


def with_command(arguments: Sequence[str]) -> list[str]:
    """The command line, in which what follows `--` is a command behind an empty filter: unless it
    begins with a hyphen, as a filter that leaves something out does."""
    given = list(arguments)
    if given[:1] != ["gate"] or "--" not in given[:-1]:
        return given
    end = given.index("--") + 1
    options = [argument.partition("=")[0] for argument in given[:end]]
    if given[end].startswith("-") and not set(TOOLS).intersection(options):
        return given
    return [*given[:end], "", *given[end:]]


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


def require_alone(context: typer.Context) -> None:
    """Refuses what a replay would have to ignore."""
    if given := options_given(context, {**MEASURED_WITH, **OF_JOBS}):
        raise GpuliftError(
            "--replay judges what its folder holds and measures nothing: leave out"
            f" {', '.join(given)}"
        )


def require_fitting(context: typer.Context, others: Mapping[str, str]) -> None:
    """Refuses what is for the other kind of gate."""
    if given := options_given(context, others):
        what = "a command behind --" if others is OF_JOBS else "gpulift's own techniques"
        raise GpuliftError(f"{', '.join(given)}: for a gate of {what} alone")
