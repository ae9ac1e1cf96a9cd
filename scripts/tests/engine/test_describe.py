"""What the real gpulift-bench says of this machine can be read, whatever is set here."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulift.engine import machine
from gpulift.ground.errors import GpuliftError


@pytest.mark.parametrize("value", ["0", "GPU-3a2b1c4d-0011-2233-4455-66778899aabb", ""])
def test_a_selection_of_cards_is_mentioned_and_not_told(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    try:
        bench = machine.find_bench()
    except GpuliftError as error:
        pytest.skip(str(error))
    assert machine.describe(bench).environment["CUDA_VISIBLE_DEVICES"] == "set"


@pytest.mark.parametrize(
    ("failed", "told"),
    [
        ("the build failed:\n  a.cpp: error: x\n", "the build failed: a.cpp: error: x"),
        ("", "run ./gpulift setup"),
    ],
)
def test_without_a_program_it_says_why_no_build_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failed: str, told: str
) -> None:
    (tmp_path / "failed").write_text(failed)
    monkeypatch.setenv("GPULIFT_BUILD", str(tmp_path))
    with pytest.raises(GpuliftError, match=told):
        machine.find_bench()
