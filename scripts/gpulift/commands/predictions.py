"""`gpulift claims --predicted`: what techniques predicted, and where the records miss it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from gpulift.analysis import misses, prediction_ledger
from gpulift.analysis.choice import choice_of
from gpulift.analysis.misses import read_reasons
from gpulift.analysis.prediction_ledger import Line, read_ledger
from gpulift.analysis.predictions import FAR, Predicted, in_numbers, tally
from gpulift.analysis.predictions import predictions as held_against
from gpulift.commands import shared as commands
from gpulift.engine import machine
from gpulift.ground import terminal, text
from gpulift.ground.errors import GpuliftError
from gpulift.records.model import Record
from gpulift.records.read import read_results
from gpulift.verdicts.matching import names_of


def show(
    results: Sequence[Path], every: bool, filter: str | None, wide: bool, as_json: bool
) -> None:
    """Where measured speedups and times lie outside of what techniques predicted.

    Predictions are the lines of results/predictions.tsv, which are never changed. Each is held
    against the run that stands for its case of those since it was written, machine by machine:
    held where the value itself is within the range, else missed. Held / (held + missed) is the
    rate. What was written after a measurement is revised, and counts as neither. The largest misses
    are first, and why, where it is known.
    """
    ledger = commands.results_folder()
    lines = read_ledger(ledger / prediction_ledger.FILE)
    reasons = read_reasons(ledger / misses.FILE)
    records = records_of(results)
    answers = held_against(records, lines, reasons, choice_of(ledger))
    found, asked = chosen(answers, lines, filter)
    if not found and not asked:
        raise GpuliftError("no technique predicts a number of any of these cases")
    shown = [one for one in found if every or one.missed]
    if as_json:
        commands.print_json([as_dict(one) for one in shown])
        return
    screen = terminal.console(wide=wide)
    if shown:
        screen.print(table(shown))
    for technique, why in why_missed(shown):
        screen.print(f"{technique}: {why}")
    for line in summary(found, asked):
        screen.print(line)


def records_of(paths: Sequence[Path]) -> list[Record]:
    """Those of all runs that the paths name; below a folder, of cards that were busy alone."""
    return [one for run in read_results(paths, choose=list) for one in run.records]


def chosen(
    found: Sequence[Predicted], lines: Sequence[Line], filter: str | None
) -> tuple[list[Predicted], list[Line]]:
    """What the filter selects of answers by their cases, and of lines by theirs."""
    matches = machine.matcher(filter)
    kept = [
        one for one in found if matches(*names_of(one.case.technique, one.case.case_id, one.arm))
    ]
    of_kept = {one.line for one in kept}
    return kept, [
        line
        for line in lines
        if line in of_kept or matches(*names_of(line.technique, line.case, line.arm))
    ]


def table(shown: Sequence[Predicted]) -> Table:
    """One row a prediction."""
    numbers = ("predicted", "measured", "beyond")
    columns = ("since", "machine", "technique", "case", "arm", *numbers, "answer")
    made = terminal.titled("Predicted and measured", ("since", "answer"), columns, numbers)
    for one in shown:
        label = text.case_label(one.case.case_id, short=True)
        cells = [one.line.since[:10], one.machine, one.case.technique, label, one.arm]
        made.add_row(*cells, one.expected, value_of(one), one.missed_by, answer(one))
    return made


def answer(one: Predicted) -> str:
    """`missed`, or of a line that does not stand any more `missed, replaced`."""
    return one.answer if one.stands else f"{one.answer}, replaced"


def value_of(one: Predicted) -> str:
    """What was measured, in the unit of the prediction; of one launch without an interval."""
    if not one.line.over:
        return text.seconds(one.measured.value)
    if one.measured.one_launch:
        return f"{text.digits(one.measured.value)}×, one launch"
    return text.speedup(one.measured)


def why_missed(shown: Sequence[Predicted]) -> list[tuple[str, str]]:
    """Of each technique that misses by far why, and of which kind the reason is."""
    far = (one for one in shown if one.far)
    told = ((one.case.technique, one.reason) for one in far)
    whys = ((technique, why.told if why else "no reason is given") for technique, why in told)
    return list(dict.fromkeys(whys))


def summary(found: Sequence[Predicted], lines: Sequence[Line]) -> list[str]:
    """How many there are of each kind, as counts and as a rate."""
    of_all, of_numbers = tally(found, lines), tally(in_numbers(found), ())
    return [
        f"{of_all.held} held, {of_all.missed} missed, {of_all.revised} revised,"
        f" {of_all.unmeasured} not yet measured",
        f"held / (held + missed): {of_all.share}; {of_numbers.share} of those that stood in"
        " numbers before, and not in words alone",
        f"beyond {FAR} times: {kinds(found)}",
    ]


def kinds(found: Sequence[Predicted]) -> str:
    """`2 measured apart, 3 not known yet`, of the reasons of what is missed by far."""
    far = [one.reason for one in found if one.far]
    counted = Counter(why.kind if why else "without a reason" for why in far)
    return ", ".join(f"{count} {kind}" for kind, count in counted.most_common()) or "none"


def as_dict(one: Predicted) -> dict[str, Any]:
    """For --json."""
    return {
        "since": one.line.since,
        "machine": one.machine,
        "technique": one.case.technique,
        "case": one.case.case_id,
        "arm": one.arm,
        "baseline": one.line.over,
        "of": "speedup" if one.line.over else "step_time_s",
        "low": one.line.low,
        "high": one.line.high,
        "remark": one.line.remark,
        "measured": one.measured.value,
        "measured_low": one.measured.low,
        "measured_high": one.measured.high,
        "launches": one.measured.launches,
        "answer": one.answer,
        "stands": one.stands,
        "missed": one.missed,
        "beyond": one.beyond,
        "reason": one.reason.kind if one.reason and one.far else "",
        "found": one.reason.why if one.reason and one.far else "",
        "records": list(one.case.record_ids(one.arm)),
    }
