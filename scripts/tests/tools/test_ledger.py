"""`python -m tools.ledger`: what techniques predict goes to the end of the ledger."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpulift.analysis.prediction_ledger import COLUMNS, FILE, read_ledger
from gpulift.engine.machine import CasePrediction, TechniqueInfo
from gpulift.ground.errors import GpuliftError
from tests import sample
from tools import ledger

COPY = TechniqueInfo(
    "transfer/pinned_copy",
    "Is it?",
    1,
    False,
    ("pageable", "pinned"),
    (),
    predict=(CasePrediction("pinned", on="h200", speedup=(1.9, 2.1)),),
)


@pytest.fixture(name="file")
def ledger_file(root: Path) -> Path:
    """file: a ledger without lines."""
    made = root / "results" / FILE
    made.parent.mkdir(exist_ok=True)
    made.write_text("\t".join(COLUMNS) + "\n", encoding="utf-8")
    arms = [sample.arm("pageable", 2e-3), sample.arm("pinned", 1e-3)]
    records = sample.launches(1, COPY.id, {"bytes": 64}, arms)
    sample.write(made.parent / "nvidia-h200" / "2026-11-21-abc1234", records)
    return made


def test_it_appends_what_is_new_once(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = replace(COPY, predict=(replace(COPY.predict[0], on="h100"),))
    monkeypatch.setattr(ledger, "known_techniques", lambda: [elsewhere])
    ledger.main()
    (line,) = read_ledger(file)
    assert (line.on, line.over, line.low, line.remark) == ("h100", "pageable", 1.9, "")
    assert "1 lines added" in capsys.readouterr().out
    before = file.read_bytes()
    ledger.main()
    assert file.read_bytes() == before


def test_what_records_have_already_is_said(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "known_techniques", lambda: [COPY])
    ledger.main()
    (line,) = read_ledger(file)
    assert line.after.startswith("gpulift:nvidia-h200/")


def test_what_is_wrong_ends_in_one_line(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing() -> list[TechniqueInfo]:
        raise GpuliftError("build first")

    monkeypatch.setattr(ledger, "known_techniques", nothing)
    before = file.read_bytes()
    with pytest.raises(SystemExit, match="build first"):
        ledger.main()
    assert file.read_bytes() == before
