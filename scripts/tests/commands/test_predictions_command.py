"""`gpulift predictions` over folders of results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpulift import cli
from gpulift.ground.errors import OK, USAGE
from tests import sample

pytestmark = pytest.mark.world

PREDICT = [
    {"arm": "pinned", "speedup": [3.8, 4.2]},
    {"arm": "pageable", "step_time_s": [1.9e-3, 2.1e-3]},
]


@pytest.fixture(name="results")
def records(root: Path) -> Path:
    """results: pinned copies that were to be four times as fast, and are twice as fast."""
    arms = [sample.arm("pageable", 2e-3), sample.arm("pinned", 1e-3)]
    made = sample.launches(
        3, "transfer/pinned_copy", {"bytes": 65536}, arms, predict=PREDICT, found="It waits."
    )
    return sample.write(root / "results" / "nvidia-h200" / "2026-11-21-abc1234", made)


def test_it_lists_misses_with_their_reason(
    results: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["predictions", "--wide"]) == OK
    shown = capfd.readouterr().out
    (row,) = [line for line in shown.splitlines() if "nvidia-h200" in line]
    assert "3.80 to 4.20×" in row
    assert "1.90 times" in row
    assert "transfer/pinned_copy: It waits." in shown
    assert "1 of 2 predictions are missed" in shown
    assert cli.main(["predictions", "--all", "--wide", str(results)]) == OK
    assert "1.90 ms to 2.10 ms" in capfd.readouterr().out


def test_json_has_the_same(results: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["predictions", "--json", "--all"]) == OK
    missed, met = json.loads(capfd.readouterr().out)
    assert (missed["arm"], missed["of"], missed["missed"]) == ("pinned", "speedup", True)
    assert (missed["low"], missed["high"], missed["found"]) == (3.8, 4.2, "It waits.")
    assert missed["measured_low"] < missed["measured"] < missed["measured_high"]
    assert len(missed["records"]) == missed["launches"] == 3
    assert (met["of"], met["missed"], met["beyond"]) == ("step_time_s", False, 1)


def test_without_predictions_it_says_so(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arms = [sample.arm("pageable", 2e-3), sample.arm("pinned", 1e-3)]
    made = sample.launches(1, "transfer/pinned_copy", {"bytes": 65536}, arms)
    sample.write(root / "results" / "nvidia-h200" / "2026-11-21-abc1234", made)
    assert cli.main(["predictions"]) == USAGE
    assert "no technique predicts a number" in capfd.readouterr().err
