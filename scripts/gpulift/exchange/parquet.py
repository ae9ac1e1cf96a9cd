"""The whole table as Parquet: the scalar columns, the raw windows as lists, the record's JSON."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from gpulift.errors import GpuliftError
from gpulift.exchange.rows import as_json, columns, rows_of
from gpulift.records.model import Record, Windows
from gpulift.records.read import Run

WINDOW_LISTS = tuple(field.name for field in fields(Windows))


def parquet_bytes(runs: Sequence[Run]) -> bytes:
    """One row for each arm and launch.

    `window_*` are totals of windows; `record_json` is the record without them, so that what has no
    column of its own is there, too.
    """
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyarrow import parquet

    types = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    rows = list(rows_of(runs))
    made: dict[str, Any] = {}
    for column in columns():
        values = [column.value(row) for row in rows]
        try:
            made[column.name] = pa.array(values, types[column.type])
        except OverflowError:
            raise GpuliftError(f"{column.name}: a record holds a number beyond 64 bits") from None
    for name in WINDOW_LISTS:
        lists = [getattr(row.arm.windows, name) if row.arm else None for row in rows]
        made[f"window_{name}"] = pa.array(lists, pa.list_(pa.float64()))
    texts = {record.id: _without_windows(record) for run in runs for record in run.records}
    made["record_json"] = pa.array([texts[row.record.id] for row in rows], pa.string())
    out = io.BytesIO()
    parquet.write_table(pa.table(made), out, compression="zstd")
    return out.getvalue()


def _without_windows(record: Record) -> str:
    """Window lists that are not known here stay."""
    raw = dict(record.raw)
    if "arms" in raw:
        raw["arms"] = [_bare(arm) for arm in raw["arms"]]
    return as_json(raw)


def _bare(arm: dict[str, Any]) -> dict[str, Any]:
    windows = arm.get("windows", {})
    rest = {name: values for name, values in windows.items() if name not in WINDOW_LISTS}
    return {k: v for k, v in arm.items() if k != "windows"} | ({"windows": rest} if rest else {})
