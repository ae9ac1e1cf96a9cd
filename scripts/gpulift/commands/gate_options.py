"""Which options of `gpulift gate` fit together, and which of them a certificate keeps."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

import typer

from gpulift.commands.shared import options_given
from gpulift.gate.evidence import Origin
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
