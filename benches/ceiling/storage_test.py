"""ceiling/storage: what is read and written is right, and counts under its roof."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from gpulift_worker import Arm, Skip
from technique_script import assert_passes_twice, error_of, load, made, manifest, points

storage = load(__file__)
MANIFEST = manifest(__file__)
POINTS = points(__file__)


@pytest.fixture(autouse=True)
def folder(disk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The case's scratch folder, and work of a small size."""
    monkeypatch.setattr(storage, "FILE_BYTES", 4 << 20)
    monkeypatch.setattr(storage, "BLOCKS", {"random_4k": (64, 4096), "sequential_1m": (4, 1 << 20)})
    return disk


make = partial(made, storage)


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
    file = folder / "blocks" / "content"
    content = bytearray(file.read_bytes())
    content[::4096] = bytes(byte ^ 1 for byte in content[::4096])  # of each block one byte
    file.write_bytes(content)
    assert error_of(arm) == 64


def test_a_read_that_brings_nothing_is_found() -> None:
    arm: Arm = storage.make("buffered", READ, 7, None)
    assert error_of(arm) > 0.9 * arm.bytes


@pytest.mark.parametrize("name", ["buffered", "direct_threads"])
def test_a_file_that_ends_too_early_is_said(folder: Path, name: str) -> None:
    arm = make(name, {"operation": "read", "access": "sequential_1m"})
    with open(folder / "blocks" / "content", "ab") as file:
        file.truncate((3 << 20) + 4096)
    with pytest.raises(OSError, match="at byte 3145728: 4096 of 1048576 bytes"):
        arm.step()


def test_an_arm_finds_what_the_one_before_it_wrote_undone_in_the_same_place(folder: Path) -> None:
    make("buffered", WRITE)
    file = folder / "blocks" / "content"
    number = file.stat().st_ino
    idle: Arm = storage.make("direct", WRITE, 7, None)
    assert file.stat().st_ino == number
    assert error_of(idle) > 0.9 * idle.bytes


FIO = f"""#!{sys.executable}
import json, sys
given = dict(one[2:].split("=") for one in sys.argv[1:] if "=" in one)
if not given:
    print("fio-3.33")
else:
    side = {{"io_bytes": int(given["io_size"]), "bw_bytes": 2 * int(given["io_size"])}}
    other = {{"io_bytes": 0, "bw_bytes": 0}}
    read = given["rw"].endswith("read")
    sides = {{"read": side if read else other, "write": other if read else side}}
    print(json.dumps({{"jobs": [sides]}}))
"""


@pytest.mark.parametrize("point", POINTS)
def test_fio_does_the_same_beside_it_by_its_own_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: dict[str, Any]
) -> None:
    program = tmp_path / "fio"
    program.write_text(FIO, encoding="ascii")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    arm = make("io_uring_direct", point)
    assert arm.notes["fio"] == "fio-3.33"
    metrics = arm.metrics()
    assert metrics["fio_s"] == 0.5
    assert metrics["rate_over_fio_ratio"] > 0
    assert not make("direct", point).metrics()


def test_without_fio_the_record_says_what_is_not_compared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    arm = make("io_uring_direct", READ)
    assert arm.notes["fio"].endswith("install fio")
    assert not arm.metrics()


@pytest.mark.parametrize("point", POINTS)
def test_fio_itself_moves_these_blocks(folder: Path, point: dict[str, Any]) -> None:
    program = shutil.which("fio")
    if program is None:
        pytest.skip("fio is not installed")
    make("direct", point)
    command = storage.fio_command(program, folder / "blocks" / "content", point)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0 and "io_uring" in done.stderr:
        pytest.skip("io_uring is forbidden")
    (job,) = json.loads(done.stdout)["jobs"]
    count, size = storage.BLOCKS[point["access"]]
    moved = job[point["operation"]]
    assert [moved["io_bytes"], moved["total_ios"]] == [count * size, count]


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
