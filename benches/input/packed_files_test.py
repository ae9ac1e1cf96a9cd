"""input/packed_files: all forms bring the same samples, and a cold case says that it is."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("packed_files.py")
sys.path.insert(0, str(ROOT / "core" / "python"))

import gpulift_samples  # noqa: E402
from gpulift_manifest import manifest_of  # noqa: E402
from gpulift_worker import Arm, Skip, scratch  # noqa: E402


def load() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("packed_files_under_test", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


packed_files = load()
MANIFEST = manifest_of("input/packed_files", SCRIPT)
POINTS = [case["point"] for case in MANIFEST["cases"]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The case's scratch folder, on what passes for a disk, and work of a small size."""
    monkeypatch.setenv("GPULIFT_SCRATCH", str(tmp_path / "case"))
    monkeypatch.setattr(gpulift_samples, "disk_facts", lambda _: {"in_memory": False})
    monkeypatch.setattr(packed_files, "SAMPLES", {4: 6, 112: 5})
    scratch.cache_clear()
    yield tmp_path / "case"
    scratch.cache_clear()


def make(name: str, point: dict[str, Any]) -> Arm:
    """An arm of the case, after the step that is checked."""
    try:
        arm: Arm = packed_files.make(name, point, 7, None)
    except (ModuleNotFoundError, Skip) as missing:
        pytest.skip(str(missing))
    arm.before()
    arm.step()
    return arm


@pytest.mark.parametrize("point", POINTS, ids=lambda point: "-".join(map(str, point.values())))
@pytest.mark.parametrize("name", MANIFEST["arms"])
def test_an_arm_passes_its_check_in_every_case(name: str, point: dict[str, Any]) -> None:
    arm = make(name, point)
    assert arm.error is not None
    assert arm.error() == 0
    arm.before()
    arm.step()  # a second one
    assert arm.error() == 0


@pytest.mark.parametrize("name", MANIFEST["arms"])
def test_only_a_cold_case_has_a_roof_and_a_precondition(name: str) -> None:
    cold = make(name, {"kibibytes": 4, "cache": "cold"})
    assert (cold.roof, cold.items, cold.bytes) == ("storage/read", 6, 6 * 4096)
    assert cold.precondition is not None
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
