"""input/read_path: all ways bring the same bytes, and what is cut off is said."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from technique_script import assert_passes_twice, error_of, load, made, manifest

read_path = load(__file__)
MANIFEST = manifest(__file__)


@pytest.fixture(autouse=True)
def folder(disk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The case's scratch folder, and work of a small size."""
    small = {"random_112k": (20, 112 << 10), "sequential_1m": (3, 1 << 20)}
    monkeypatch.setattr(read_path, "BLOCKS", small)
    return disk


make = partial(made, read_path)


@pytest.mark.parametrize("name", MANIFEST["arms"])
def test_every_arm_reads_right_in_a_second_window_too(name: str) -> None:
    assert_passes_twice(make(name, {"access": "sequential_1m", "cache": "warm"}))


POINT = {"access": "random_112k", "cache": "warm"}


def test_a_wrong_byte_is_found(folder: Path) -> None:
    arm = make("pread", POINT)
    file = folder / "pread" / "content"
    content = bytearray(file.read_bytes())
    content[5] ^= 1
    file.write_bytes(content)
    arm.step()
    assert error_of(arm) == 1


@pytest.mark.parametrize("name", ["pread", "willneed", "io_uring_buffered"])
def test_a_file_that_ends_too_early_is_said(folder: Path, name: str) -> None:
    arm = make(name, POINT)
    with open(folder / name / "content", "ab") as file:
        file.truncate(19 * (112 << 10) + 100)
    with pytest.raises(OSError, match=f"at byte {19 * (112 << 10)}: 100 of 114688 bytes"):
        arm.step()


def test_the_system_is_told_of_each_block_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    monkeypatch.setattr(
        read_path.os, "posix_fadvise", lambda descriptor, offset, size, advice: told.append(offset)
    )
    make("willneed", POINT)
    assert sorted(told) == [place * (112 << 10) for place in range(20)]


def test_only_direct_arms_go_past_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(bytes(4096))
    flags: list[int] = []
    monkeypatch.setattr(read_path, "require_flags", lambda file, asked: flags.append(asked))
    monkeypatch.setattr(read_path, "Ring", lambda depth: None)
    for name in MANIFEST["arms"]:
        read_path.reading(name, tmp_path / "file", np.zeros(1, np.int64), np.zeros((1, 4096)))
    direct = read_path.os.O_DIRECT
    assert flags == [0, 0, 0, direct, 0, direct]
