"""The whole table as Parquet: the scalar columns, the raw windows as lists, the record's JSON."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import islice
from typing import Any

import orjson

from gpulift.exchange.rows import as_json, cells_of, columns
from gpulift.ground.errors import GpuliftError
from gpulift.records.model import Record, Windows
from gpulift.records.read import Run

WINDOW_LISTS = tuple(field.name for field in fields(Windows))
BATCH = 8192  # rows that are held at once, and that a group of the file has


def parquet_bytes(runs: Sequence[Run]) -> bytes:
    """One row for each arm and launch.

    `window_*` are totals of windows; `record_json` is the record without them, so that what has no
    column of its own is there, too.
    """
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyarrow import parquet

    types = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    scalars = [(column.name, types[column.type]) for column in columns()]
    windows = [(f"window_{name}", pa.list_(pa.float64())) for name in WINDOW_LISTS]
    schema = pa.schema([*scalars, *windows, ("record_json", pa.string())])
    rows = _rows(runs)
    out = io.BytesIO()
    with parquet.ParquetWriter(out, schema, compression="zstd") as writer:
        while batch := list(islice(rows, BATCH)):
            arrays = [
                _array(pa, field, values)
                for field, values in zip(schema, zip(*batch, strict=True), strict=True)
            ]
            writer.write_batch(pa.record_batch(arrays, schema=schema))
    return out.getvalue()


def _array(pa: Any, field: Any, values: Sequence[Any]) -> Any:
    try:
        return pa.array(values, field.type)
    except OverflowError:
        raise GpuliftError(f"{field.name}: a record holds a number beyond 64 bits") from None


def _rows(runs: Sequence[Run]) -> Iterator[list[Any]]:
    """Cells of the scalar columns, then lists of windows, then the rest as JSON."""
    record, rest = None, ""
    for row, cells in cells_of(runs, lambda value: value):
        if row.record is not record:
            record, rest = row.record, _without_windows(row.record)
        lists = [getattr(row.arm.windows, name) if row.arm else None for name in WINDOW_LISTS]
        yield [*cells, *lists, rest]


def _without_windows(record: Record) -> str:
    """Window lists that are not known here stay."""
    raw = dict(record.raw)
    if "arms" in raw:
        raw["arms"] = [_bare(arm) for arm in raw["arms"]]
    try:
        return orjson.dumps(raw).decode()
    except TypeError:  # an integer beyond 64 bits
        return as_json(raw)


def _bare(arm: dict[str, Any]) -> dict[str, Any]:
    windows = arm.get("windows", {})
    rest = {name: values for name, values in windows.items() if name not in WINDOW_LISTS}
    return {k: v for k, v in arm.items() if k != "windows"} | ({"windows": rest} if rest else {})
