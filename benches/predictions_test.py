"""The ledger of predictions: it has what techniques predict, was never rewritten, says what was
written after a measurement, and misses by far have reasons."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

import pytest
from gpulift.analysis import misses, prediction_ledger
from gpulift.analysis.choice import choice_of
from gpulift.analysis.misses import Reason, read_reasons, unused
from gpulift.analysis.prediction_ledger import Line, read_ledger, standing, told_by
from gpulift.analysis.predictions import FAR, Predicted, predictions
from gpulift.analysis.today import read_today
from gpulift.commands.predictions import records_of
from gpulift.commands.shared import known_techniques
from gpulift.records.model import Record
from gpulift.verdicts.cases import TECHNIQUE

RESULTS = Path(__file__).parents[1] / "results"
LEDGER = RESULTS / prediction_ledger.FILE


@cache
def lines() -> tuple[Line, ...]:
    return read_ledger(LEDGER)


@cache
def records() -> tuple[Record, ...]:
    return tuple(records_of([RESULTS]))


@cache
def reasons() -> tuple[Reason, ...]:
    return read_reasons(RESULTS / misses.FILE)


@cache
def found() -> tuple[Predicted, ...]:
    return predictions(records(), lines(), reasons(), choice_of(RESULTS))


def test_what_techniques_predict_stands_in_the_ledger() -> None:
    told = told_by(known_techniques())
    assert told, "no technique that is built predicts a number"
    stand = {line.same_range for line in standing(lines())}
    lacking = [line for line in told if line.same_range not in stand]
    assert lacking == [], "append them before they are measured: python -m tools.ledger"


def test_what_stands_in_the_ledger_is_what_techniques_predict() -> None:
    infos = known_techniques()
    told = {line.same_range for line in told_by(infos)}
    built = {info.id for info in infos}
    more = [line for line in standing(lines()) if line.same_range not in told]
    assert [line for line in more if line.technique in built] == []


def test_no_line_was_ever_changed_or_taken_out() -> None:
    log = ["git", "log", "-p", "--format=", "--no-renames", "--", LEDGER.name]
    told = subprocess.run(log, cwd=RESULTS, capture_output=True, text=True, check=False)
    if told.returncode:
        pytest.skip(f"this is no clone of the repository: {told.stderr.strip()}")
    taken = [line for line in told.stdout.splitlines() if line.startswith("-") and line[1:2] != "-"]
    assert taken == []
    head = ["git", "show", f"HEAD:./{LEDGER.name}"]
    committed = subprocess.run(head, cwd=RESULTS, capture_output=True, text=True, check=False)
    text = LEDGER.read_text(encoding="utf-8")
    assert text.startswith(committed.stdout), "lines are appended, not changed"


def test_lines_stand_in_the_order_of_their_dates() -> None:
    dates = [line.since for line in lines()]
    assert dates == sorted(dates)


def test_what_was_written_after_a_measurement_says_so() -> None:
    today = read_today(RESULTS)
    by_technique: dict[str, list[Record]] = {}
    for record in records():
        if record.kind == TECHNIQUE and record.outcome == "ok":
            by_technique.setdefault(record.technique, []).append(record)
    silent = [
        (line.cells(), record.citation)
        for line in lines()
        if not line.remark.startswith(prediction_ledger.AFTER)
        and line.remark != prediction_ledger.WITHDRAWN
        for record in by_technique.get(line.technique, ())
        if record.began_at < line.since and line.is_of(record, today)
    ]
    assert silent == []


def test_records_that_lines_name_are_there() -> None:
    known = {record.citation for record in records()}
    named = {line.after for line in lines() if line.after.startswith("gpulift:")}
    assert named
    assert named <= known


def test_a_prediction_that_records_miss_by_far_has_a_reason() -> None:
    silent = [
        f"{one.case.technique}/{one.case.case_id}/{one.arm} on {one.machine}:"
        f" {one.beyond:.2f} times beyond {one.expected}, measured {one.measured.value:.3g}"
        for one in found()
        if one.far and one.reason is None
    ]
    assert silent == [], f"miss by more than {FAR} and have no entry in {misses.FILE}"


def test_no_reason_is_left_of_what_is_not_missed() -> None:
    far = [(one.case.first, one.arm) for one in found() if one.far]
    assert unused(reasons(), far) == []
