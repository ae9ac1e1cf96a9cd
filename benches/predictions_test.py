"""What techniques predict, held against the records that are committed."""

from __future__ import annotations

from pathlib import Path

from gpulift.analysis.choice import read_cases
from gpulift.analysis.predictions import FAR, predictions, unexplained
from gpulift.commands.shared import known_techniques

RESULTS = Path(__file__).parents[1] / "results"


def test_a_prediction_that_records_miss_by_far_has_a_reason() -> None:
    records = [record for run in read_cases([RESULTS]) for record in run.records]
    told = {info.id: info for info in known_techniques()}
    found = predictions(records, told)
    assert found, "no technique that is built predicts what a record measured"
    silent = [
        f"{one.case.technique}/{one.case.case_id}/{one.prediction.arm} on {one.machine}:"
        f" {one.beyond:.2f} times beyond {one.range}, measured {one.measured.value:.3g}"
        for one in unexplained(found)
    ]
    assert silent == [], f"miss by more than {FAR} and have no `found`"
