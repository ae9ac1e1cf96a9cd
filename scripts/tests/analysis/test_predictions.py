"""Predictions of techniques, held against records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpulift.analysis.predictions import Predicted, predictions, unexplained
from gpulift.engine.machine import CasePrediction, TechniqueInfo
from gpulift.records.model import Prediction, Record
from gpulift.records.read import read_run
from tests import sample

TECHNIQUE = "transfer/pinned_copy"
CASE = {"direction": "h2d", "bytes": 64}
TWICE = {"arm": "pinned", "speedup": [1.9, 2.1]}


def measured(folder: Path, *, pinned_s: float = 1e-3, **told: Any) -> list[Record]:
    arms = [sample.arm("pageable", 2e-3), sample.arm("pinned", pinned_s)]
    made = [{**one, **told} for one in sample.launches(3, TECHNIQUE, CASE, arms)]
    sample.write(folder, made)
    return list(read_run(folder).records)


def info(*predict: CasePrediction, found: str = "") -> TechniqueInfo:
    return TechniqueInfo(
        TECHNIQUE, "Is it?", 1, False, ("pageable", "pinned"), (), predict=predict, found=found
    )


def only(found: tuple[Predicted, ...]) -> Predicted:
    (one,) = found
    return one


def test_what_a_record_predicts_is_held_against_it(tmp_path: Path) -> None:
    one = only(predictions(measured(tmp_path, predict=[TWICE]), {}))
    assert (one.baseline, one.range) == ("pageable", (1.9, 2.1))
    assert one.measured.value == pytest.approx(2, rel=0.02)
    assert (one.missed, one.beyond) == (False, 1)


@pytest.mark.parametrize(
    ("predict", "beyond"),
    [
        ({"speedup": [3.8, 4.2]}, 1.9),
        ({"speedup": [0.5, 1]}, 2),
        ({"step_time_s": [2e-3, 3e-3]}, 2),
        ({"step_time_s": [1e-4, 2.5e-4]}, 4),
    ],
)
def test_a_miss_says_how_far_beyond_the_nearer_end_it_is(
    tmp_path: Path, predict: dict[str, Any], beyond: float
) -> None:
    records = measured(tmp_path, predict=[{"arm": "pinned", **predict}])
    found = predictions(records, {})
    assert only(found).missed
    assert only(found).beyond == pytest.approx(beyond, rel=0.05)
    assert unexplained(found) == list(found)
    explained = predictions(records, {TECHNIQUE: info(found="The driver waits.")})
    assert only(explained).found == "The driver waits."
    assert unexplained(explained) == []


def test_a_value_whose_interval_reaches_the_range_is_no_miss(tmp_path: Path) -> None:
    records = measured(tmp_path, predict=[{"arm": "pinned", "speedup": [2.001, 9]}])
    one = only(predictions(records, {}))
    assert one.measured.high is not None
    assert (one.measured.value < 2.001 < one.measured.high) is not one.missed


def test_a_small_miss_needs_no_reason(tmp_path: Path) -> None:
    found = predictions(measured(tmp_path, predict=[{"arm": "pinned", "speedup": [2.4, 3]}]), {})
    assert only(found).missed
    assert unexplained(found) == []


def test_a_prediction_for_another_machine_or_of_what_was_not_measured_is_none(
    tmp_path: Path,
) -> None:
    elsewhere = [{**TWICE, "on": "cpu"}, {"arm": "registered", "speedup": [1, 2]}]
    assert predictions(measured(tmp_path, predict=elsewhere), {}) == ()
    here = [{**TWICE, "on": "h200"}]
    assert predictions(measured(tmp_path / "here", predict=here), {})


def test_an_older_record_is_held_against_what_the_file_predicts_today(tmp_path: Path) -> None:
    both = info(
        CasePrediction("pinned", speedup=(4, 5), case={"bytes": 64}),
        CasePrediction("pinned", speedup=(7, 8), case={"bytes": 32}),
    )
    older = measured(tmp_path / "older", schema="1.9")
    assert only(predictions(older, {TECHNIQUE: both})).range == (4, 5)
    newer = measured(tmp_path / "newer", predict=[TWICE])
    assert only(predictions(newer, {TECHNIQUE: both})).range == (1.9, 2.1)


def test_an_older_record_with_another_baseline_is_held_against_todays(tmp_path: Path) -> None:
    turned = TechniqueInfo(
        TECHNIQUE,
        "Is it?",
        1,
        False,
        ("pinned", "pageable"),
        (),
        predict=(CasePrediction("pageable", speedup=(0.45, 0.55)),),
    )
    one = only(predictions(measured(tmp_path, schema="1.9"), {TECHNIQUE: turned}))
    assert (one.baseline, one.missed) == ("pinned", False)


def test_of_two_runs_the_newest_counts(tmp_path: Path) -> None:
    earlier = measured(tmp_path / "a", predict=[TWICE], started_at="2026-11-20T00:00:00Z")
    later = measured(
        tmp_path / "b", predict=[TWICE], pinned_s=2e-3, started_at="2026-11-21T00:00:00Z"
    )
    assert only(predictions([*later, *earlier], {})).measured.value == pytest.approx(1, rel=0.02)


@pytest.mark.parametrize(
    "ranges", [{}, {"speedup": (1.0, 2.0), "step_time_s": (1.0, 2.0)}, {"speedup": (2.0, 1.0)}]
)
def test_a_prediction_is_one_range(ranges: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="one of speedup and step_time_s"):
        Prediction("pinned", **ranges)
