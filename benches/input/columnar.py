"""input/columnar: parts of a table from Parquet or from Arrow's own files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow  # type: ignore[import-untyped]
import pyarrow.fs  # type: ignore[import-untyped]
import pyarrow.ipc  # type: ignore[import-untyped]
import pyarrow.parquet  # type: ignore[import-untyped]
from gpulift_work.samples import folder_for, warm
from gpulift_worker import Arm, cores

TECHNIQUE = {
    "question": "Is a table read faster from Parquet, which is small, or from Arrow's files, which "
    "need no decoding?",
    "expectation": """
        40 MB in 20 columns of 4 bytes: ids of which few are frequent, and measured values of 3
        digits; 10 parts of 50,000 rows, which are Parquet's row groups and Arrow's record batches.
        Parquet with dictionaries and Snappy has 16 MB. Half of the parts are read in batches of
        1,000 rows, whose columns are summed up, 25 ms in all. A trial on two cores: Parquet decodes
        them in 66 ms, and 2 columns in 11; a map of Arrow's file takes 1 to 2 ms, slices 4: 91 over
        31, 2.9, and 13 over 6, 2.1. LZ4 takes 5 to 10 ms more, Zstandard 10. 256 rows at random lie
        in all parts: Parquet decodes 40 MB, 35 ms, Arrow touches their pages alone, 3 ms: 6 to 20;
        LZ4 is decoded, too: 2.5. From an S3 server on the loopback, 8 requests at once, Parquet
        takes 89 ms and Arrow 33, of two columns 59 and 68, and the sums as before: 1.8 and 0.85;
        rows at random 16 or 40 MB, 0.75. Where the server hands out 100 MB/s the size decides: 8
        MB in 80 ms beside the decoding, 130 in all, over 20 MB, 230: 0.56; 2 columns 0.75, rows at
        random 200 ms over 400, 0.5.
    """,
    "predict": [
        "read:batches/store:local_warm: arrow 2.3-3.5, arrow_lz4 1.8-2.9, parquet_zstd 0.75-1.0",
        "read:batches_of_2_columns/store:local_warm: arrow 1.5-3, arrow_lz4 1.3-2.6",
        "read:random_rows/store:local_warm: arrow 6-20, arrow_lz4 1.7-4",
        "read:batches/store:s3: arrow 1.2-2.4, arrow_lz4 1.1-2.3",
        "read:batches_of_2_columns/store:s3: arrow 0.6-1.2",
        "read:random_rows/store:s3: arrow 0.5-1.1",
        "read:batches/store:s3_100_mb_s: arrow 0.45-0.75, arrow_lz4 0.6-0.9, parquet_zstd 0.95-1.2",
        "read:batches_of_2_columns/store:s3_100_mb_s: arrow 0.5-1.05",
        "read:random_rows/store:s3_100_mb_s: arrow 0.4-0.65",
    ],
    "claims": [
        "arrow-when-processor-bound",
        "parquet-when-storage-bound",
        "arrow-random-access-faster",
    ],
    "arms": ["parquet", "parquet_zstd", "arrow", "arrow_lz4"],
    "l2": "none",
    "page_cache": "warm",
    "sweep": {
        "read": ["batches", "batches_of_2_columns", "random_rows"],
        "store": ["local_warm", "s3", "s3_100_mb_s"],
    },
    "check": {"meaning": "wrong bytes of the columns", "tolerance": 0},
}
PARTS, PART_ROWS, COLUMNS = 10, 50_000, 20
BATCH_ROWS, RANDOM_ROWS = 1000, 256
MEAN_ID = 50.0
RATES = {"s3": 0.0, "s3_100_mb_s": 1e8}  # bytes a second; 0 is what the server can
BUCKET, FILE = "tables", "table"

Columns = Mapping[str, Any]
Opened = Callable[[], Any]  # the table's file, on the disk or an object


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A step reads and sums each column up, or nothing of a map would be read."""
    pyarrow.set_cpu_count(cores())
    folder = folder_for(arm, 8.0 * PARTS * PART_ROWS * COLUMNS * 4)
    file = folder / "store" / BUCKET / FILE
    file.parent.mkdir(parents=True)
    write(arm, pyarrow.table(dict(made_columns(seed))), file)
    store = str(point["store"])
    opened, said = mapped(file) if store == "local_warm" else served(file, RATES[store])
    names = [f"column_{place:02}" for place in range(COLUMNS)]
    wanted = names[:: COLUMNS // 2] if point["read"] == "batches_of_2_columns" else names
    table = TABLES[arm.partition("_")[0]](opened, wanted)
    generator = np.random.default_rng(seed)
    rows = generator.choice(PARTS * PART_ROWS, RANDOM_ROWS, replace=False)
    at_random = point["read"] == "random_rows"
    halves = range(0, PARTS, 2)  # what one reader of two takes
    last: dict[str, Any] = {}

    def step() -> None:
        last["read"] = [table.rows(rows)] if at_random else list(table.batches(halves))
        last["sums"] = sums(last["read"])

    def error() -> float:
        places = rows if at_random else rows_of(halves)
        made = made_columns(seed)
        columns = {name: made[name][places] for name in wanted}
        return wrong_bytes(last.pop("read"), last["sums"], columns)

    count = RANDOM_ROWS if at_random else len(halves) * PART_ROWS
    notes = {"threads": str(cores()), "in_flight": str(pyarrow.io_thread_count())}
    return Arm(
        step=step,
        error=error,
        metrics=lambda: {"file_bytes": float(file.stat().st_size)},
        items=count,
        item="row",
        bytes=count * len(wanted) * 4,
        versions={"pyarrow": pyarrow.__version__, **said.pop("versions", {})},
        notes={**notes, **said.pop("notes", {})},
        **said,
    )


def mapped(file: Path) -> tuple[Opened, dict[str, Any]]:
    """The file on the disk, and what an arm says that reads it."""
    return lambda: pyarrow.memory_map(str(file)), warm([file])


def served(file: Path, bytes_per_s: float) -> tuple[Opened, dict[str, Any]]:
    """The same as an object of a server."""
    from gpulift_work.object_store import SERVER, ObjectStore  # a large package

    store = ObjectStore(file.parents[1], bytes_per_s=bytes_per_s)
    objects = pyarrow.fs.S3FileSystem(
        access_key=store.keys[0],
        secret_key=store.keys[1],
        endpoint_override=store.address,
        scheme="http",
        region="us-east-1",
    )

    def opened() -> Any:
        assert store  # which serves as long as somebody holds it
        return objects.open_input_file(f"{BUCKET}/{FILE}")

    return opened, {"versions": {SERVER: store.versions[SERVER]}, "notes": store.notes}


def made_columns(seed: int) -> dict[str, Any]:
    """Half of them ids, of which a few are frequent, half of them measured values."""
    generator = np.random.default_rng(seed)
    columns: dict[str, Any] = {}
    for place in range(COLUMNS):
        ids = generator.geometric(1 / MEAN_ID, PARTS * PART_ROWS).astype(np.int32)
        values = generator.normal(size=PARTS * PART_ROWS).round(3).astype(np.float32)
        columns[f"column_{place:02}"] = ids if place % 2 == 0 else values
    return columns


def write(arm: str, table: Any, file: Path) -> None:
    """The table in the arm's format."""
    if arm.startswith("parquet"):
        compression = "zstd" if arm == "parquet_zstd" else "snappy"
        pyarrow.parquet.write_table(table, file, row_group_size=PART_ROWS, compression=compression)
        return
    options = pyarrow.ipc.IpcWriteOptions(compression="lz4" if arm == "arrow_lz4" else None)
    with pyarrow.ipc.new_file(str(file), table.schema, options=options) as output:
        output.write_table(table, max_chunksize=PART_ROWS)


class Parquet:
    """A file that is opened for each step; all ranges of columns are asked for at once."""

    def __init__(self, opened: Opened, wanted: Sequence[str]) -> None:
        self._opened = opened
        self._wanted = list(wanted)

    def batches(self, parts: Sequence[int]) -> Iterable[Any]:
        """Of row groups, one after another."""
        with self._opened() as source:
            file = pyarrow.parquet.ParquetFile(source, pre_buffer=True)
            yield from file.iter_batches(BATCH_ROWS, row_groups=parts, columns=self._wanted)

    def rows(self, rows: Any) -> Any:
        """Out of all row groups that have some."""
        parts, places = parts_of(rows)
        with self._opened() as source:
            file = pyarrow.parquet.ParquetFile(source, pre_buffer=True)
            return file.read_row_groups(parts, columns=self._wanted).take(places)


class Arrow:
    """The same of record batches, each of which a thread asks for."""

    def __init__(self, opened: Opened, wanted: Sequence[str]) -> None:
        self._opened = opened
        with opened() as source:
            names = pyarrow.ipc.open_file(source).schema.names
        fields = [names.index(name) for name in wanted]
        self._options = pyarrow.ipc.IpcReadOptions(included_fields=fields)

    def batches(self, parts: Sequence[int]) -> Iterable[Any]:
        """Slices of them."""
        for part in self._parts(parts):
            for start in range(0, len(part), BATCH_ROWS):
                yield part.slice(start, BATCH_ROWS)

    def rows(self, rows: Any) -> Any:
        """Of a map no more is read than their pages."""
        parts, places = parts_of(rows)
        return pyarrow.Table.from_batches(self._parts(parts)).take(places)

    def _parts(self, parts: Sequence[int]) -> list[Any]:
        with self._opened() as source, ThreadPoolExecutor(pyarrow.io_thread_count()) as pool:
            file = pyarrow.ipc.open_file(source, options=self._options)
            return list(pool.map(file.get_batch, parts))


TABLES: Mapping[str, Callable[[Opened, Sequence[str]], Parquet | Arrow]] = {
    "parquet": Parquet,
    "arrow": Arrow,
}


def rows_of(parts: Sequence[int]) -> Any:
    """The numbers of all rows in these parts."""
    return (np.asarray(parts)[:, None] * PART_ROWS + np.arange(PART_ROWS)).ravel()


def parts_of(rows: Any) -> tuple[list[int], Any]:
    """The parts that have these rows, and where the rows are in these parts alone."""
    parts, place = np.unique(rows // PART_ROWS, return_inverse=True)
    return parts.tolist(), place * PART_ROWS + rows % PART_ROWS


def sums(read: Iterable[Any]) -> dict[str, int]:
    """Of the bits of each column's values, in tables or record batches."""
    found: dict[str, int] = {}
    for part in read:
        for name, column in zip(part.schema.names, part.columns, strict=True):
            found[name] = found.get(name, 0) + word_sum(column.to_numpy())
    return found


def word_sum(values: Any) -> int:
    """Of 32-bit words."""
    return int(np.add.reduce(values.view(np.uint32), dtype=np.uint64))


def wrong_bytes(read: Sequence[Any], found_sums: Mapping[str, int], wanted: Columns) -> float:
    """Of all columns, which must be those that were asked for. Raises ValueError where others came,
    or the step summed something else up."""
    if read[0].schema.names != list(wanted):
        raise ValueError(f"read {read[0].schema.names}, not {list(wanted)}")
    if found_sums != sums(read):
        raise ValueError("the step's sums are not those of the columns")
    return float(
        sum(
            differing(np.concatenate([part[name].to_numpy() for part in read]), values)
            for name, values in wanted.items()
        )
    )


def differing(found: Any, values: Any) -> int:
    """Bytes of a column that are not those of the values."""
    if (found.shape, found.dtype) != (values.shape, values.dtype):
        return int(values.nbytes)
    return int(np.count_nonzero(found.view(np.uint8) != values.view(np.uint8)))
