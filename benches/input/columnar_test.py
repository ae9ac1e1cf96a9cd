"""input/columnar: all formats bring the same columns, and read no more than they need."""

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
SCRIPT = Path(__file__).with_name("columnar.py")
sys.path.insert(0, str(ROOT / "core" / "python"))

import gpulift_samples  # noqa: E402
from gpulift_manifest import manifest_of  # noqa: E402
from gpulift_worker import Arm, Skip, scratch  # noqa: E402


def load() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("columnar_under_test", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


columnar = load()
MANIFEST = manifest_of("input/columnar", SCRIPT)
POINTS = [case["point"] for case in MANIFEST["cases"]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The case's scratch folder, on what passes for a disk, and work of a small size."""
    monkeypatch.setenv("GPULIFT_SCRATCH", str(tmp_path / "case"))
    monkeypatch.setattr(gpulift_samples, "disk_facts", lambda _: {"in_memory": False})
    monkeypatch.setattr(columnar, "ROWS", 8000)
    monkeypatch.setattr(columnar, "STORE", (1e12, 0.0))
    scratch.cache_clear()
    yield tmp_path / "case"
    scratch.cache_clear()


def make(name: str, point: dict[str, Any]) -> Arm:
    """An arm of the case, after the step that is checked."""
    try:
        arm: Arm = columnar.make(name, point, 7, None)
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
def test_a_tenth_of_the_columns_is_a_tenth_of_the_bytes(name: str) -> None:
    read = {
        columns: make(name, {"columns": columns, "store": "emulated_100MB_s"}).metrics()
        for columns in ("tenth", "all")
    }
    assert read["tenth"]["read_bytes"] < 0.5 * read["all"]["read_bytes"]
    assert read["all"]["read_bytes"] > 0.9 * read["all"]["file_bytes"]
    assert read["tenth"]["requests_count"] >= 1


def test_compression_makes_the_file_smaller() -> None:
    point = {"columns": "all", "store": "local_warm"}
    sizes = {name: make(name, point).metrics()["file_bytes"] for name in MANIFEST["arms"]}
    assert sizes["parquet_zstd"] < sizes["parquet"] < sizes["arrow"]
    assert sizes["arrow_lz4"] < sizes["arrow"]


def test_wrong_columns_values_and_sums_are_found() -> None:
    wanted = {"a": np.arange(5, dtype=np.int32), "b": np.ones(5, np.float32)}
    table = columnar.pyarrow.table(wanted)
    found = columnar.sums(table)
    assert columnar.wrong_bytes(table, found, wanted) == 0
    other = {**wanted, "b": np.array([1, 1, -1, 1, 1], np.float32)}
    assert columnar.wrong_bytes(table, found, other) == 1
    assert columnar.wrong_bytes(table, found, {**wanted, "b": np.ones(6, np.float32)}) == 24
    with pytest.raises(ValueError, match=r"read \['a', 'b'\], not \['a'\]"):
        columnar.wrong_bytes(table, found, {"a": wanted["a"]})
    with pytest.raises(ValueError, match="sums"):
        columnar.wrong_bytes(table, {**found, "a": 11}, wanted)
