"""A real fault, between two real builds, through the real gate; on any machine."""

from __future__ import annotations

from pathlib import Path

from gpulift.ground.errors import FAILED
from tests.faults import gate_of_faults


def test_an_extra_pass_over_host_memory_is_found_and_explained(tmp_path: Path) -> None:
    code, rows = gate_of_faults(tmp_path, "testing/host_extra_pass")
    assert code == FAILED
    (row,) = rows
    assert row["verdict"] == "regressed"
    assert row["attribution"]["cause"].startswith("the host's work: a step takes +")
    rates = [one for one in row["attribution"]["measures"] if one["unit"] == "B/s"]
    assert len(rates) == 1
    assert rates[0]["ratio"] < 1
