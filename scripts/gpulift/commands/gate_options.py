"""Which options of `gpulift gate` fit together, and which of them a certificate keeps."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

import typer

from gpulift.commands.shared import given_in
from gpulift.gate.evidence import Origin
from gpulift.ground.errors import GpuliftError

OF_BOTH = ("--base-python", "--head-python", "--budget", "--thresholds")
OF_COMMANDS = (
    "--with",
    "--metric",
    "--higher",
    "--setup",
    "--plant",
    "--threshold",
    "--timeout",
    "--same",
    "--tolerance",
)
OF_TECHNIQUES = ("--filter", "--all", "--arm-time")
AGAIN = (*OF_BOTH, *OF_COMMANDS, *OF_TECHNIQUES)  # what a certificate keeps of a command line
# What a replay takes from its folder.
MEASURED_WITH = ("--base", "--head", "same", "--out", "--seed", "--gpu", "command", *AGAIN)
ARGUMENTS = {"same": "the filter", "command": "the command"}


def origin_of(context: typer.Context, command: Sequence[str] | None) -> Origin:
    """What was asked for, but for the commits, which are not known yet."""
    options = {
        option: tuple("" if one is True else str(one) for one in value)
        for option, held in given_in(context).items()
        if option in AGAIN
        for value in [held if isinstance(held, list) else [held]]
    }
    positional = context.params["same"]
    script = positional or "" if not command else ""
    began_at = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return Origin("", "", options, script, tuple(command or ()), {}, began_at)


def require_fitting(context: typer.Context, replay: bool, of_command: bool) -> None:
    """Refuses what a replay, or the other kind of gate, would have to ignore."""
    given = given_in(context)
    if replay and (wrong := [ARGUMENTS.get(one, one) for one in MEASURED_WITH if one in given]):
        raise GpuliftError(
            "--replay judges what its folder holds and measures nothing: leave out"
            f" {', '.join(wrong)}"
        )
    if wrong := [one for one in (OF_TECHNIQUES if of_command else OF_COMMANDS) if one in given]:
        what = "gpulift's own techniques" if of_command else "a command behind --"
        raise GpuliftError(f"{', '.join(wrong)}: for a gate of {what} alone")
