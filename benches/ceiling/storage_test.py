"""ceiling/storage: what is read and written is right, and counts under its roof."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gpulift_worker import Arm, Skip
from technique_script import assert_passes_twice, load, made, manifest, points

storage = load(__file__)
MANIFEST = manifest(__file__)
POINTS = points(__file__)


@pytest.fixture(autouse=True)
def folder(disk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The case's scratch folder, and work of a small size."""
    monkeypatch.setattr(storage, "FILE_BYTES", 4 << 20)
    monkeypatch.setattr(storage, "BLOCKS", {"random_4k": (64, 4096), "sequential_1m": (4, 1 << 20)})
    return disk


def make(name: str, point: dict[str, Any]) -> Arm:
    """An arm of the case, after the step that is checked."""
    return made(storage, name, point)


@pytest.mark.parametrize("access", ["random_4k", "sequential_1m"])
@pytest.mark.parametrize("name", MANIFEST["arms"])
def test_what_every_arm_writes_is_right_in_a_second_window_too(name: str, access: str) -> None:
    assert_passes_twice(make(name, {"operation": "write", "access": access}))


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
