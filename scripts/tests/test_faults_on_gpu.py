"""Real faults on a real GPU: each is found, and what the records say of its cause is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulift.engine import machine
from gpulift.ground.errors import FAILED
from tests.faults import CAUSES, faults_folder, gate_of_faults


def test_every_fault_is_found_and_its_cause_is_told(tmp_path: Path) -> None:
    missing = machine.describe(faults_folder() / "base" / "gpulift-bench").gpu_missing
    if missing:
        pytest.skip(missing)
    code, rows = gate_of_faults(tmp_path)
    found = {row["technique"]: row for row in rows}
    assert code == FAILED
    assert found.keys() == CAUSES.keys()
    verdicts = {name: row["verdict"] for name, row in found.items()}
    assert verdicts == dict.fromkeys(CAUSES, "regressed")
    causes = {name: row["attribution"]["cause"] for name, row in found.items()}
    wrong = {name: said for name, said in causes.items() if not said.startswith(CAUSES[name])}
    assert wrong == {}
