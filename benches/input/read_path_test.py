"""input/read_path: all ways bring the same bytes, and what is cut off is said."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("read_path.py")
sys.path.insert(0, str(ROOT / "core" / "python"))

import gpulift_samples  # noqa: E402
from gpulift_manifest import manifest_of  # noqa: E402
from gpulift_worker import Arm, Skip, scratch  # noqa: E402


def load() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("read_path_under_test", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


read_path = load()
MANIFEST = manifest_of("input/read_path", SCRIPT)
POINTS = [case["point"] for case in MANIFEST["cases"]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The case's scratch folder, on what passes for a disk, and work of a small size."""
    monkeypatch.setenv("GPULIFT_SCRATCH", str(tmp_path / "case"))
    monkeypatch.setattr(gpulift_samples, "disk_facts", lambda _: {"in_memory": False})
    small = {"random_112k": (20, 112 << 10), "sequential_1m": (3, 1 << 20)}
    monkeypatch.setattr(read_path, "BLOCKS", small)
    scratch.cache_clear()
    yield tmp_path / "case"
    scratch.cache_clear()


def make(name: str, point: dict[str, Any]) -> Arm:
    """An arm of the case, after the step that is checked."""
    try:
        arm: Arm = read_path.make(name, point, 7, None)
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


POINT = {"access": "random_112k", "cache": "warm"}


def test_a_wrong_byte_is_found(folder: Path) -> None:
    arm = make("pread", POINT)
    file = folder / "pread" / "content"
    content = bytearray(file.read_bytes())
    content[5] ^= 1
    file.write_bytes(content)
    arm.step()
    assert arm.error is not None
    assert arm.error() == 1


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
