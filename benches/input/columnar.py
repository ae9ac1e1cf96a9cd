"""input/columnar: columns of a table from Parquet or from Arrow's own files."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow  # type: ignore[import-untyped]
import pyarrow.ipc  # type: ignore[import-untyped]
import pyarrow.parquet  # type: ignore[import-untyped]
from gpulift_work.samples import ThrottledFile, ThrottledReader, folder_for
from gpulift_worker import Arm, cores

TECHNIQUE = {
    "question": "Is a table read faster from Parquet, which is small, or from Arrow's files, which "
    "need no decoding?",
    "expectation": (
        "16 MB in 20 columns of 4 bytes: ids of which few are frequent, and measured values of 3 "
        "digits. Parquet with dictionaries and Snappy has about half of that, Zstandard a little "
        "less, LZ4 0.7. Warm: Parquet decodes 1 GB/s a core, 8 ms on two, and the sum over it "
        "takes 3 ms; a map of Arrow's file is there at once, and its pages are touched by the "
        "sum, 4 ms: 2.7; LZ4 gives 2 GB/s a core, 7 ms, 1.6; Zstandard 0.8 of Snappy. A tenth of "
        "the columns takes a tenth of it, and 1 ms to read the footer: Arrow's still 2. From a "
        "store of 100 MB/s and 5 ms a request the size decides: 8 MB 80 ms, 16 MB 160: Arrow 0.5, "
        "LZ4 0.7, Zstandard 1.1; of a tenth, 5 requests of latency and 8 ms for Parquet, 16 for "
        "Arrow: 0.8."
    ),
    "predict": [
        {
            "case": {"columns": "all", "store": "local_warm"},
            "speedup": {
                "arrow": [2.43, 2.97],
                "arrow_lz4": [1.44, 1.76],
                "parquet_zstd": [0.72, 0.88],
            },
        },
        {"case": {"columns": "tenth", "store": "local_warm"}, "speedup": {"arrow": [1.8, 2.2]}},
        {
            "case": {"columns": "all", "store": "emulated_100MB_s"},
            "step_time_s": {"parquet": [0.072, 0.088]},
            "speedup": {
                "arrow": [0.45, 0.55],
                "arrow_lz4": [0.63, 0.77],
                "parquet_zstd": [0.99, 1.21],
            },
        },
        {
            "case": {"columns": "tenth", "store": "emulated_100MB_s"},
            "speedup": {"arrow": [0.72, 0.88]},
        },
    ],
    "found": (
        "Of a tenth of the columns Parquet takes 1.9 ms, as predicted, and Arrow 0.45, a tenth of "
        "its 4.0: reading the footer of its file costs it nothing that shows, where a millisecond "
        "was assumed: 4.2."
    ),
    "claims": ["arrow-when-processor-bound", "parquet-when-storage-bound"],
    "arms": ["parquet", "parquet_zstd", "arrow", "arrow_lz4"],
    "l2": "none",
    "page_cache": "warm",
    "sweep": {"columns": ["tenth", "all"], "store": ["local_warm", "emulated_100MB_s"]},
    "check": {"meaning": "wrong bytes of the columns", "tolerance": 0},
}
ROWS, COLUMNS, BATCHES = 200_000, 20, 8
MEAN_ID = 50.0
STORE = (1e8, 5e-3)  # bytes a second, and latency in s

Columns = Mapping[str, Any]
Read = Callable[[Any], Any]  # of an opened file to a table


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A step reads columns and sums each of them up, or nothing of a map would be read."""
    pyarrow.set_cpu_count(cores())
    folder = folder_for(arm, 8.0 * ROWS * COLUMNS * 4)
    file = folder / "table"
    write(arm, pyarrow.table(dict(made_columns(seed))), file)
    emulated = point["store"] != "local_warm"
    names = [f"column_{place:02}" for place in range(COLUMNS)]
    wanted = names[:: COLUMNS // 2] if point["columns"] == "tenth" else names
    link = ThrottledReader(*(STORE if emulated else (math.inf, 0.0)))
    read = reader_of(arm, wanted, names)
    last: dict[str, Any] = {}

    def step() -> None:
        source = ThrottledFile(link, file) if emulated else pyarrow.memory_map(str(file))
        with source:
            last["table"] = read(source)
            last["sums"] = sums(last["table"])

    def error() -> float:
        return wrong_bytes(
            last.pop("table"), last["sums"], {name: made_columns(seed)[name] for name in wanted}
        )

    def metrics() -> dict[str, float]:
        found = {"file_bytes": float(file.stat().st_size)}
        if emulated:
            link.bytes_read = link.requests = 0
            step()
            found |= {"read_bytes": float(link.bytes_read), "requests_count": float(link.requests)}
        return found

    return Arm(
        step=step,
        error=error,
        metrics=metrics,
        items=ROWS,
        item="row",
        bytes=ROWS * len(wanted) * 4,
        versions={"pyarrow": pyarrow.__version__},
        notes={
            "threads": str(cores()),
            **(
                {"load": "emulated: 100 MB/s, 5 ms a request, one after another"}
                if emulated
                else {}
            ),
        },
    )


def made_columns(seed: int) -> dict[str, Any]:
    """Half of them ids, of which a few are frequent, half of them measured values."""
    generator = np.random.default_rng(seed)
    columns: dict[str, Any] = {}
    for place in range(COLUMNS):
        ids = generator.geometric(1 / MEAN_ID, ROWS).astype(np.int32)
        values = generator.normal(size=ROWS).round(3).astype(np.float32)
        columns[f"column_{place:02}"] = ids if place % 2 == 0 else values
    return columns


def write(arm: str, table: Any, file: Path) -> None:
    """The table in the arm's format."""
    if arm.startswith("parquet"):
        compression = "zstd" if arm == "parquet_zstd" else "snappy"
        pyarrow.parquet.write_table(
            table, file, row_group_size=ROWS // BATCHES, compression=compression
        )
        return
    options = pyarrow.ipc.IpcWriteOptions(compression="lz4" if arm == "arrow_lz4" else None)
    with pyarrow.ipc.new_file(str(file), table.schema, options=options) as output:
        output.write_table(table, max_chunksize=ROWS // BATCHES)


def reader_of(arm: str, wanted: Sequence[str], names: Sequence[str]) -> Read:
    """How the arm reads these of all columns; only their parts of the file are asked for."""
    if arm.startswith("parquet"):
        return lambda source: pyarrow.parquet.read_table(source, columns=list(wanted))
    places = [names.index(name) for name in wanted] if len(wanted) < len(names) else None
    options = pyarrow.ipc.IpcReadOptions(included_fields=places)

    def read_arrow(source: Any) -> Any:
        with pyarrow.ipc.open_file(source, options=options) as opened:
            return opened.read_all()

    return read_arrow


def sums(table: Any) -> dict[str, int]:
    """Of the bits of each column's values."""
    return {name: column_sum(table[name]) for name in table.column_names}


def column_sum(column: Any) -> int:
    """Of 32-bit words."""
    return sum(
        int(np.add.reduce(chunk.to_numpy().view(np.uint32), dtype=np.uint64))
        for chunk in column.chunks
    )


def wrong_bytes(table: Any, found_sums: Mapping[str, int], wanted: Columns) -> float:
    """Of all columns, which must be those that were asked for. Raises ValueError where others came,
    or the step summed something else up."""
    if table.column_names != list(wanted):
        raise ValueError(f"read {table.column_names}, not {list(wanted)}")
    if found_sums != sums(table):
        raise ValueError("the step's sums are not those of the columns")
    return float(sum(differing(table[name], values) for name, values in wanted.items()))


def differing(column: Any, values: Any) -> int:
    """Bytes of a column that are not those of the values."""
    found = column.to_numpy()
    if (found.shape, found.dtype) != (values.shape, values.dtype):
        return int(values.nbytes)
    return int(np.count_nonzero(found.view(np.uint8) != values.view(np.uint8)))
