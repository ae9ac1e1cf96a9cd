"""ceiling/storage: what is read and written is right, and counts under its roof."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("storage.py")
sys.path.insert(0, str(ROOT / "core" / "python"))

import gpulift_samples  # noqa: E402
from gpulift_manifest import manifest_of  # noqa: E402
from gpulift_worker import Arm, Skip, scratch  # noqa: E402


def load() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("storage_under_test", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


storage = load()
MANIFEST = manifest_of("ceiling/storage", SCRIPT)
POINTS = [case["point"] for case in MANIFEST["cases"]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The case's scratch folder, on what passes for a disk, and work of a small size."""
    monkeypatch.setenv("GPULIFT_SCRATCH", str(tmp_path / "case"))
    monkeypatch.setattr(gpulift_samples, "disk_facts", lambda _: {"in_memory": False})
    monkeypatch.setattr(storage, "FILE_BYTES", 4 << 20)
    monkeypatch.setattr(storage, "BLOCKS", {"random_4k": (64, 4096), "sequential_1m": (4, 1 << 20)})
    scratch.cache_clear()
    yield tmp_path / "case"
    scratch.cache_clear()


def make(name: str, point: dict[str, Any]) -> Arm:
    """An arm of the case, after the step that is checked."""
    try:
        arm: Arm = storage.make(name, point, 7, None)
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


READ = {"operation": "read", "access": "random_4k"}
WRITE = {"operation": "write", "access": "random_4k"}


@pytest.mark.parametrize("point", POINTS)
def test_a_case_counts_its_bytes_under_its_roof(point: dict[str, Any]) -> None:
    arm = make("buffered", point)
    assert arm.roof == f"storage/{point['operation']}"
    assert arm.bytes == (64 * 4096 if point["access"] == "random_4k" else 4 << 20)
    assert arm.precondition is not None


def test_a_byte_that_was_not_written_is_found(folder: Path) -> None:
    arm = make("buffered", WRITE)
    file = folder / "buffered" / "content"
    content = bytearray(file.read_bytes())
    content[::4096] = bytes(byte ^ 1 for byte in content[::4096])  # of each block one byte
    file.write_bytes(content)
    assert arm.error is not None
    assert arm.error() == 64


def test_a_read_that_brings_nothing_is_found() -> None:
    arm: Arm = storage.make("buffered", READ, 7, None)
    assert arm.error is not None
    assert arm.error() > 0.9 * arm.bytes


@pytest.mark.parametrize("name", ["buffered", "direct_threads"])
def test_a_file_that_ends_too_early_is_said(folder: Path, name: str) -> None:
    arm = make(name, {"operation": "read", "access": "sequential_1m"})
    with open(folder / name / "content", "ab") as file:
        file.truncate((3 << 20) + 4096)
    with pytest.raises(OSError, match="at byte 3145728: 4096 of 1048576 bytes"):
        arm.step()


def test_a_write_is_durable_when_the_step_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(storage.os, "fdatasync", synced.append)
    make("direct", WRITE)
    assert len(synced) == 1
    make("direct", READ)
    assert len(synced) == 1


def test_without_o_direct_the_arm_is_skipped_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(storage.os, "open", refuse)
    with pytest.raises(Skip, match="no O_DIRECT: Invalid argument") as skip:
        storage.open_file(tmp_path, direct=True)
    assert "--scratch DIR" in skip.value.remedy
