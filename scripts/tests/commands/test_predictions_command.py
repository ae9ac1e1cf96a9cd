"""`gpulift claims --predicted` over folders of results."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gpulift import cli
from gpulift.analysis import misses
from gpulift.analysis.prediction_ledger import COLUMNS, FILE, Line, append
from gpulift.ground.errors import OK
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
def test_what_is_shown(transcript: Callable[..., None]) -> None:
    """Misses with their reason, all, those of a filter, what was not measured, and nothing."""
    filters = ("pageable$", "pinned$", "transfer/managed", "transfer/none")
    each = (f"claims --predicted --filter {filter}" for filter in filters)
    transcript("claims --predicted --wide", "claims --predicted --all --wide", *each)


@pytest.mark.usefixtures("results")
def test_json_has_the_same(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["claims", "--predicted", "--json", "--all"]) == OK
    missed, met, revised = json.loads(capfd.readouterr().out)
    assert (missed["arm"], missed["of"], missed["answer"]) == ("pinned", "speedup", "missed")
    assert (missed["low"], missed["high"], missed["baseline"]) == (3.8, 4.2, "pageable")
    assert (missed["reason"], missed["found"]) == ("reckoned", "It waits.")
    assert missed["measured_low"] < missed["measured"] < missed["measured_high"]
    assert len(missed["records"]) == missed["launches"] == 3
    assert (met["of"], met["answer"], met["beyond"]) == ("step_time_s", "held", 1)
    assert (met["remark"], met["reason"]) == ("in words", "")
    assert (revised["answer"], revised["missed"]) == ("revised", False)
