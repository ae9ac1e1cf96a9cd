"""input/columnar: all formats bring the same columns, and read no more than they need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpulift_worker import Arm
from technique_script import load, made, manifest

columnar = load(__file__)
MANIFEST = manifest(__file__)


@pytest.fixture(autouse=True)
def folder(disk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The case's scratch folder, and work of a small size."""
    monkeypatch.setattr(columnar, "ROWS", 8000)
    monkeypatch.setattr(columnar, "STORE", (1e12, 0.0))
    return disk


def make(name: str, point: dict[str, Any]) -> Arm:
    """An arm of the case, after the step that is checked."""
    return made(columnar, name, point)


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
