"""`gpulift predictions`: what techniques predicted, and where the records miss it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.table import Table

from gpulift.analysis.choice import read_cases
from gpulift.analysis.predictions import Predicted
from gpulift.analysis.predictions import predictions as held_against
from gpulift.commands import shared as commands
from gpulift.engine import machine
from gpulift.ground import terminal, text
from gpulift.ground.arguments import Filter, Json, SomeResults, Wide
from gpulift.ground.errors import GpuliftError
from gpulift.verdicts.matching import selected

Every = Annotated[bool, typer.Option("--all", help="What came out as predicted, too.")]


def predictions(
    results: SomeResults = None,
    every: Every = False,
    filter: Filter = None,
    wide: Wide = False,
    as_json: Json = False,
) -> None:
    """List where measured speedups and times lie outside of what techniques predicted.

    Without RESULTS those of the checkout; of each machine and case the newest run, the largest
    misses first, and why, where the technique says it.
    """
    runs = selected(read_cases(results or [machine.all_records()]), filter)
    told = {info.id: info for info in commands.known_techniques()}
    found = held_against([record for run in runs for record in run.records], told)
    if not found:
        raise GpuliftError("no technique predicts a number of any of these cases")
    shown = [one for one in found if every or one.missed]
    if as_json:
        commands.print_json([as_dict(one) for one in shown])
        return
    screen = terminal.console(wide=wide)
    if shown:
        screen.print(table(shown))
    for technique, why in reasons(shown):
        screen.print(f"{technique}: {why or 'no reason is given'}")
    missed = sum(one.missed for one in found)
    screen.print(f"{missed} of {len(found)} predictions are missed")


def table(shown: Sequence[Predicted]) -> Table:
    """One row a prediction."""
    numbers = ("predicted", "measured", "beyond")
    columns = ("machine", "technique", "case", "arm", *numbers)
    made = terminal.titled("Predicted and measured", numbers, columns, numbers)
    for one in shown:
        label = text.case_label(one.case.case_id, short=True)
        cells = [one.machine, one.case.technique, label, one.prediction.arm]
        made.add_row(*cells, one.expected, value_of(one), one.missed_by)
    return made


def value_of(one: Predicted) -> str:
    """What was measured, in the unit of the prediction."""
    if one.prediction.speedup:
        return text.speedup(one.measured)
    return text.seconds(one.measured.value)


def reasons(shown: Sequence[Predicted]) -> list[tuple[str, str]]:
    """Of each technique why it is missed; empty where it does not say it."""
    missed = (one for one in shown if one.missed)
    return list(dict.fromkeys((one.case.technique, one.found) for one in missed))


def as_dict(one: Predicted) -> dict[str, Any]:
    """For --json."""
    low, high = one.range
    return {
        "machine": one.machine,
        "technique": one.case.technique,
        "case": one.case.case_id,
        "arm": one.prediction.arm,
        "baseline": one.baseline,
        "of": "speedup" if one.prediction.speedup else "step_time_s",
        "low": low,
        "high": high,
        "measured": one.measured.value,
        "measured_low": one.measured.low,
        "measured_high": one.measured.high,
        "launches": one.measured.launches,
        "missed": one.missed,
        "beyond": one.beyond,
        "found": one.found,
        "records": list(one.case.record_ids(one.prediction.arm)),
    }
