"""`gpulift predictions` over folders of results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpulift import cli
from gpulift.analysis import misses
from gpulift.analysis.prediction_ledger import COLUMNS, FILE, Line, append
from gpulift.ground.errors import OK, USAGE
from tests import sample

pytestmark = pytest.mark.world

BEFORE = "2026-11-19T00:00:00Z"
COPY = "transfer/pinned_copy"
LINES = [
    Line(BEFORE, COPY, "", "h200", "pinned", "pageable", 3.8, 4.2),
    Line(BEFORE, COPY, "", "", "pageable", "", 1.9e-3, 2.1e-3, "in words"),
    Line(BEFORE, COPY, "", "", "pinned", "", 9e-4, 1.1e-3, "after a launch that was not kept"),
    Line(BEFORE, COPY, "", "h100", "pinned", "pageable", 3.8, 4.2),
    Line(BEFORE, "transfer/managed", "", "h100", "mapped", "copied", 3.8, 4.2),
]
WHY = f'[[misses]]\ntechnique = "{COPY}"\nkind = "reckoned"\nwhy = "It waits."\n'


@pytest.fixture(name="results")
def records(root: Path) -> Path:
    """results: pinned copies that were to be four times as fast, and are twice as fast."""
    arms = [sample.arm("pageable", 2e-3), sample.arm("pinned", 1e-3)]
    made = sample.launches(3, COPY, {"bytes": 65536}, arms)
    run = sample.write(root / "results" / "nvidia-h200" / "2026-11-21-abc1234", made)
    ledger = root / "results" / FILE
    ledger.write_text("\t".join(COLUMNS) + "\n", encoding="utf-8")
    append(ledger, LINES)
    (root / "results" / misses.FILE).write_text(WHY, encoding="utf-8")
    return run


@pytest.mark.usefixtures("results")
def test_it_lists_misses_with_their_reason_and_counts_all(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["predictions", "--wide"]) == OK
    shown = capfd.readouterr().out
    (row,) = [line for line in shown.splitlines() if "nvidia-h200" in line]
    assert "3.80 to 4.20×" in row
    assert "1.90 times" in row
    assert "transfer/pinned_copy: reckoned: It waits." in shown
    assert "1 held, 1 missed, 1 revised, 2 not yet measured" in shown
    assert "held / (held + missed): 50 % (1 of 2); 0 % (0 of 1) of those" in shown
    assert "beyond 1.3 times: 1 reckoned" in shown


def test_all_are_those_that_were_held_too(results: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["predictions", "--all", "--wide", str(results)]) == OK
    shown = capfd.readouterr().out
    assert "1.90 ms to 2.10 ms" in shown
    assert [line.split()[-1] for line in shown.splitlines() if "nvidia-h200" in line] == [
        "missed",
        "held",
        "revised",
    ]


@pytest.mark.usefixtures("results")
def test_json_has_the_same(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["predictions", "--json", "--all"]) == OK
    missed, met, revised = json.loads(capfd.readouterr().out)
    assert (missed["arm"], missed["of"], missed["answer"]) == ("pinned", "speedup", "missed")
    assert (missed["low"], missed["high"], missed["baseline"]) == (3.8, 4.2, "pageable")
    assert (missed["reason"], missed["found"]) == ("reckoned", "It waits.")
    assert missed["measured_low"] < missed["measured"] < missed["measured_high"]
    assert len(missed["records"]) == missed["launches"] == 3
    assert (met["of"], met["answer"], met["beyond"]) == ("step_time_s", "held", 1)
    assert (met["remark"], met["reason"]) == ("in words", "")
    assert (revised["answer"], revised["missed"]) == ("revised", False)


@pytest.mark.usefixtures("results")
def test_a_filter_selects_answers_and_what_was_not_measured(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["predictions", "--filter", "pageable$"]) == OK
    assert "1 held, 0 missed, 0 revised, 0 not yet measured" in capfd.readouterr().out
    assert cli.main(["predictions", "--filter", "pinned$"]) == OK
    assert "0 held, 1 missed, 1 revised, 1 not yet measured" in capfd.readouterr().out


@pytest.mark.usefixtures("results")
def test_what_was_predicted_and_not_measured_is_counted(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["predictions", "--filter", "transfer/managed"]) == OK
    shown = capfd.readouterr().out
    assert "0 held, 0 missed, 0 revised, 1 not yet measured" in shown
    assert "held / (held + missed): none" in shown


@pytest.mark.usefixtures("results")
def test_without_predictions_it_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["predictions", "--filter", "transfer/none"]) == USAGE
    assert "no technique predicts a number" in capfd.readouterr().err
