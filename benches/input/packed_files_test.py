"""input/packed_files: all forms bring the same samples, and a cold case says that it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gpulift_worker import Arm
from technique_script import load, made, manifest, points

packed_files = load(__file__)
MANIFEST = manifest(__file__)
POINTS = points(__file__)


@pytest.fixture(autouse=True)
def folder(disk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The case's scratch folder, and work of a small size."""
    monkeypatch.setattr(packed_files, "SAMPLES", {4: 6, 112: 5})
    return disk


def make(name: str, point: dict[str, Any]) -> Arm:
    """An arm of the case, after the step that is checked."""
    return made(packed_files, name, point)


@pytest.mark.parametrize("name", MANIFEST["arms"])
def test_only_a_cold_case_has_a_roof_and_a_precondition(name: str) -> None:
    cold = make(name, {"kibibytes": 4, "cache": "cold"})
    assert (cold.roof, cold.items, cold.bytes) == ("storage/read", 6, 6 * 4096)
    assert cold.precondition is not None
    assert cold.error is not None
    assert cold.error() == 0
    assert cold.notes["cold"].startswith("cold in this machine")
    warm = make(name, {"kibibytes": 4, "cache": "warm"})
    assert (warm.roof, warm.precondition, warm.has_before) == ("", None, False)


def test_the_package_that_reads_is_named() -> None:
    pytest.importorskip("lmdb")
    assert "lmdb" in make("lmdb", POINTS[0]).versions


def test_a_sample_that_another_program_changed_is_found(folder: Path) -> None:
    arm = make("files", {"kibibytes": 4, "cache": "warm"})
    file = folder / "files" / "000003.bin"
    file.write_bytes(bytes(byte ^ 1 for byte in file.read_bytes()))
    arm.step()
    assert arm.error is not None
    assert arm.error() == 4096


def test_only_the_arms_own_folder_is_written(folder: Path, tmp_path: Path) -> None:
    make("tar", POINTS[0])
    assert list(tmp_path.iterdir()) == [folder]
    assert [one.name for one in folder.iterdir()] == ["tar"]
