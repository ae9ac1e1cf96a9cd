"""`gpulift doctor`: what can run here, and whether what is measured here is true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, NoReturn

import typer

from gpulift.commands import instrument as instruments
from gpulift.commands.shared import examine, print_json
from gpulift.engine import doctor as doctors
from gpulift.engine.machine import TechniqueInfo
from gpulift.ground import terminal
from gpulift.ground.arguments import Json
from gpulift.ground.entry import say
from gpulift.records.model import Context
from gpulift.report import tables


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
