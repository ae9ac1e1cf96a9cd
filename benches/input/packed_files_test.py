"""input/packed_files: all forms bring the same samples, and a cold case says that it is."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from gpulift_work import samples
from gpulift_worker import Skip
from technique_script import error_of, load, made, manifest, points

packed_files = load(__file__)
MANIFEST = manifest(__file__)
POINTS = points(__file__)


@pytest.fixture(autouse=True)
def folder(disk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The case's scratch folder, and work of a small size."""
    monkeypatch.setattr(packed_files, "MEBIBYTE", 8 << 10)
    monkeypatch.setattr(samples, "read_ahead_kib", lambda folder: 8)
    return disk


make = partial(made, packed_files)


@pytest.mark.parametrize("name", MANIFEST["arms"])
def test_only_a_cold_case_has_a_roof_and_a_precondition(name: str) -> None:
    cold = make(name, {"kibibytes": 4, "data": "64_mib_cold"})
    assert (cold.roof, cold.items, cold.bytes) == ("storage/read", 128, 128 * 4096)
    assert cold.precondition is not None
    assert cold.precondition.name == "resident_share"
    assert error_of(cold) == 0
    assert cold.notes["cold"].startswith("cold in this machine")
    warm = make(name, {"kibibytes": 4, "data": "64_mib_warm"})
    assert warm.roof == ""
    assert "cold" not in warm.notes
    assert warm.precondition is not None
    assert warm.precondition.name == "absent_share"


def test_a_case_that_a_disk_cannot_have_names_one_that_it_can(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def skipped(data: str) -> Skip:
        with pytest.raises(Skip) as skip:
            packed_files.make("pack", {"kibibytes": 4, "data": data}, 7, None)
        return skip.value

    monkeypatch.setattr(samples, "read_ahead_kib", lambda folder: 128)
    assert "take data:512_mib_cold" in skipped("64_mib_cold").remedy
    assert skipped("512_mib_cold").remedy == packed_files.LESS_AHEAD
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 20))
    assert "take data:64_mib_cold" in skipped("512_mib_cold").remedy
    assert "the files need 4 MB" in str(skipped("64_mib_cold"))


def test_the_package_that_reads_is_named() -> None:
    pytest.importorskip("lmdb")
    assert "lmdb" in make("lmdb", POINTS[0]).versions


def test_a_sample_that_another_program_changed_is_found(folder: Path) -> None:
    arm = make("files", {"kibibytes": 4, "data": "64_mib_warm"})
    file = folder / "files" / "000003.bin"
    file.write_bytes(bytes(byte ^ 1 for byte in file.read_bytes()))
    arm.step()
    assert error_of(arm) == 4096


def test_a_step_reads_a_part_of_many_samples() -> None:
    arm = make("pack", {"kibibytes": 4, "data": "512_mib_cold"})
    assert (arm.items, arm.bytes) == (128, 128 * 4096)
    assert error_of(arm) == 0


def test_only_the_arms_own_folder_is_written(folder: Path, tmp_path: Path) -> None:
    make("pack", POINTS[0])
    assert list(tmp_path.iterdir()) == [folder]
    assert [one.name for one in folder.iterdir()] == ["pack"]
