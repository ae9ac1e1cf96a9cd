"""Predictions of techniques, held against records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpulift.analysis.choice import Choice
from gpulift.analysis.errata import Erratum
from gpulift.analysis.misses import UNKNOWN, Reason
from gpulift.analysis.prediction_ledger import WITHDRAWN, Line
from gpulift.analysis.predictions import (
    HELD,
    MISSED,
    REVISED,
    Predicted,
    Tally,
    in_numbers,
    of_case,
    predictions,
    tally,
)
from gpulift.records.model import Prediction, Record
from gpulift.records.read import read_run
from gpulift.verdicts.cases import TECHNIQUE as KIND
from gpulift.verdicts.cases import group_cases
from tests import sample

TECHNIQUE = "transfer/pinned_copy"
CASE = {"direction": "h2d", "bytes": 64}
BEFORE, LATER = "2026-11-19T00:00:00Z", "2026-11-20T12:00:00Z"
TWICE = Line(BEFORE, TECHNIQUE, "bytes:64", "h200", "pinned", "pageable", 1.9, 2.1)


def measured(
    folder: Path, *, pinned_s: float = 1e-3, launches: int = 3, **told: Any
) -> list[Record]:
    told = {"started_at": "2026-11-20T00:00:00Z", **told}
    arms = [sample.arm("pageable", 2e-3), sample.arm("pinned", pinned_s)]
    made = [{**one, **told} for one in sample.launches(launches, TECHNIQUE, CASE, arms)]
    sample.write(folder, made)
    return list(read_run(folder).records)


def only(found: tuple[Predicted, ...]) -> Predicted:
    (one,) = found
    return one


def test_a_value_within_its_range_is_held(tmp_path: Path) -> None:
    one = only(predictions(measured(tmp_path), [TWICE]))
    assert one.measured.value == pytest.approx(2, rel=0.02)
    assert (one.answer, one.missed, one.beyond, one.missed_by) == (HELD, False, 1, "")


@pytest.mark.parametrize(
    ("over", "low", "high", "beyond"),
    [
        ("pageable", 3.8, 4.2, 1.9),
        ("pageable", 0.5, 1, 2),
        ("", 2e-3, 3e-3, 2),
        ("", 1e-4, 2.5e-4, 4),
    ],
)
def test_a_miss_says_how_far_beyond_the_nearer_end_it_is(
    tmp_path: Path, over: str, low: float, high: float, beyond: float
) -> None:
    one = only(predictions(measured(tmp_path), [replace(TWICE, over=over, low=low, high=high)]))
    assert (one.answer, one.far) == (MISSED, True)
    assert one.beyond == pytest.approx(beyond, rel=0.05)


def test_the_value_decides_however_wide_its_interval_is(tmp_path: Path) -> None:
    records = measured(tmp_path)
    one = only(predictions(records, [TWICE]))
    assert one.measured.high is not None
    above = (one.measured.value + one.measured.high) / 2
    assert only(predictions(records, [replace(TWICE, low=above, high=9.0)])).answer == MISSED


def test_one_launch_is_enough(tmp_path: Path) -> None:
    one = only(predictions(measured(tmp_path, launches=1), [TWICE]))
    assert (one.measured.launches, one.answer) == (1, HELD)


def test_a_small_miss_needs_no_reason_and_is_told_in_percent(tmp_path: Path) -> None:
    one = only(predictions(measured(tmp_path), [replace(TWICE, low=2.1, high=3.0)]))
    assert (one.answer, one.far) == (MISSED, False)
    assert one.missed_by.endswith(" %")


@pytest.mark.parametrize(
    "other",
    [
        {"on": "cpu"},
        {"arm": "registered"},
        {"over": "registered"},
        {"case": "bytes:32"},
        {"technique": "transfer/managed"},
        {"since": LATER},
        {"remark": WITHDRAWN},
    ],
)
def test_what_was_not_measured_since_has_no_answer(tmp_path: Path, other: dict[str, Any]) -> None:
    lines = [replace(TWICE, **other)]
    assert predictions(measured(tmp_path), lines) == ()
    waits = "remark" not in other
    assert tally((), lines) == Tally(held=0, missed=0, revised=0, unmeasured=waits)


def test_a_record_from_before_there_were_regimes_is_one_of_bursts(tmp_path: Path) -> None:
    records = measured(tmp_path)
    of_bursts = replace(TWICE, case="bytes:64/regime:burst")
    assert only(predictions(records, [of_bursts])).answer == HELD
    assert predictions(records, [replace(TWICE, case="bytes:64/regime:sustained")]) == ()


def test_of_two_runs_the_one_that_stands_for_the_case_counts(tmp_path: Path) -> None:
    earlier = measured(tmp_path / "a")
    later = measured(tmp_path / "b", pinned_s=2e-3, started_at=LATER)
    one = only(predictions([*later, *earlier], [TWICE]))
    assert one.measured.value == pytest.approx(1, rel=0.02)


def test_a_ratio_that_an_erratum_withholds_holds_nothing(tmp_path: Path) -> None:
    earlier = measured(tmp_path / "a")
    later = measured(tmp_path / "b", pinned_s=2e-3, started_at=LATER)
    error = Erratum(
        *("short", "records", "wrong", "later"), runs=("*/b",), arms="pageable", leads=False
    )
    wrong = Choice(errata=(error,))
    assert predictions(later, [TWICE], choice=wrong) == ()
    one = only(predictions([*earlier, *later], [TWICE], choice=wrong))
    assert one.measured.value == pytest.approx(2, rel=0.02)
    its_time = replace(TWICE, over="", low=1.9e-3)
    assert only(predictions(later, [its_time], choice=wrong)).answer == HELD


def test_a_range_that_was_changed_is_held_against_what_was_measured_until_then(
    tmp_path: Path,
) -> None:
    earlier = measured(tmp_path / "a")
    later = measured(tmp_path / "b", pinned_s=2e-3, started_at=LATER)
    first = replace(TWICE, low=2.8, high=3.2)
    revised = replace(TWICE, since="2026-11-20T06:00:00Z", remark="after gpulift:nvidia-h200/1")
    lines = [first, revised]
    found = predictions([*later, *earlier], lines)
    by_answer = {one.answer: one for one in found}
    assert by_answer[MISSED].line == first
    assert by_answer[MISSED].measured.value == pytest.approx(2, rel=0.02)
    assert not by_answer[MISSED].stands
    assert not by_answer[MISSED].far, "no reason is asked for what does not stand"
    assert by_answer[REVISED].measured.value == pytest.approx(1, rel=0.02)
    assert tally(found, lines) == Tally(held=0, missed=1, revised=1, unmeasured=0)


def test_what_was_written_after_a_measurement_never_counts_as_held(tmp_path: Path) -> None:
    lines = [replace(TWICE, remark="after a launch that was not kept")]
    found = predictions(measured(tmp_path), lines)
    assert (only(found).answer, only(found).missed) == (REVISED, False)
    assert tally(found, lines).share == "none"


def test_the_share_is_of_what_was_held_and_missed(tmp_path: Path) -> None:
    wrong = replace(TWICE, arm="pageable", over="", low=1.0, high=2.0)
    words = replace(TWICE, arm="pinned", over="", low=9e-4, high=1.1e-3, remark="in words")
    lines = [TWICE, wrong, words]
    found = predictions(measured(tmp_path), lines)
    assert tally(found, lines).share == "67 % (2 of 3)"
    assert tally(in_numbers(found), ()).share == "50 % (1 of 2)"


def test_a_miss_has_the_first_reason_of_its_technique_arm_and_case(tmp_path: Path) -> None:
    records, far = measured(tmp_path), replace(TWICE, low=4.0, high=5.0)
    reasons = [
        Reason("transfer/managed", UNKNOWN),
        Reason(TECHNIQUE, UNKNOWN, arms="page"),
        Reason(TECHNIQUE, UNKNOWN, "one"),
        Reason(TECHNIQUE, UNKNOWN, "two"),
    ]
    assert only(predictions(records, [far], reasons)).reason == reasons[2]
    assert only(predictions(records, [far], reasons[:2])).reason is None


def test_a_record_says_itself_what_was_predicted_of_an_arm(tmp_path: Path) -> None:
    predict = [
        {"arm": "pinned", "speedup": [1.9, 2.1]},
        {"arm": "pinned", "step_time_s": [4e-3, 5e-3]},
        {"arm": "pinned", "on": "cpu", "speedup": [9, 9]},
        {"arm": "pageable", "step_time_s": [1e-3, 3e-3]},
    ]
    (case,) = group_cases(measured(tmp_path, predict=predict), KIND)
    held, missed = of_case(case, "pinned")
    assert (held.expected, held.missed_by) == ("1.90 to 2.10×", "")
    assert (missed.expected, missed.line.over) == ("4.00 ms to 5.00 ms", "")
    assert missed.beyond == pytest.approx(4, rel=0.02)


@pytest.mark.parametrize(
    "ranges", [{}, {"speedup": (1.0, 2.0), "step_time_s": (1.0, 2.0)}, {"speedup": (2.0, 1.0)}]
)
def test_a_prediction_is_one_range(ranges: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="one of speedup and step_time_s"):
        Prediction("pinned", **ranges)
