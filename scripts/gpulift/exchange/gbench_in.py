"""Imports the JSON of Google Benchmark: a file is a launch, a repetition in it a window.

The format: https://github.com/google/benchmark/blob/main/docs/user_guide.md#output-formats, and
src/json_reporter.cc of 1.5 to 1.9. Before 1.5 no row says whether it is a statistic of others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

from gpulift.exchange.foreign import (
    ForeignFile,
    Part,
    listing,
    read_files,
    reason_of,
    rest_of,
    rows_of,
)
from gpulift.exchange.imported import (
    UNKNOWN,
    Case,
    Imported,
    Json,
    Measurement,
    record_of,
    told_apart,
)
from gpulift.ground.errors import RecordError
from gpulift.ground.text import visible
from gpulift.records.values import Count, Integer, Maybe, Number, among

SCHEMA_VERSION = 1  # in the context since 1.9
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
ITERATION, AGGREGATE = "iteration", "aggregate"
PARAMETERS = ("threads", "repetitions")  # in the case where benchmarks of one name differ in them
INDICES = ("family_index", "per_family_instance_index")  # since 1.5.4; others come with a filter
STATISTICS = ("median", "mean")  # the first that is there
NO_GPU = "none is named: a file of Google Benchmark never does"
NOTES = {
    "unknown": "GPU, driver, processor model, build, and the order of the benchmarks",
    "repetitions": "a file is a launch, the repetitions in it are windows",
}
MANUAL = "the benchmark's own (manual time); what kind of clock it is, is unknown"
NOT_APART = "several benchmarks of this name that nothing in the file tells apart"


@dataclass(frozen=True)
class Context:
    """What is read of a file's context."""

    json_schema_version: Integer = SCHEMA_VERSION
    num_cpus: Maybe[Count] = None
    date: str = UNKNOWN


@dataclass(frozen=True)
class Top:
    """What is read of a file, its rows apart."""

    context: Context


@dataclass(frozen=True)
class Entry:
    """Which benchmark an entry is of, and whether it was measured."""

    name: str
    run_type: Annotated[str, among(ITERATION, AGGREGATE)]
    run_name: str = ""
    threads: Integer = 0
    repetitions: Integer = 0
    family_index: Integer = 0
    per_family_instance_index: Integer = 0
    repetition_index: Integer = 0
    aggregate_name: str = ""
    error_occurred: bool = False
    error_message: str = ""
    skipped: bool = False
    skip_message: str = ""


@dataclass(frozen=True)
class Timing:
    """The time of one iteration, and how many there were."""

    real_time: Number
    iterations: Count = 1
    time_unit: Annotated[str, among(*SECONDS)] = "ns"


@dataclass(frozen=True)
class _Row:
    """An entry, which benchmark it is of, and what of that."""

    entry: Part
    name: str
    parameters: tuple[int, ...]
    indices: tuple[int, ...]
    part: int | str  # the repetition, or the name of a statistic of all
    problem: tuple[str, str] | None  # outcome and reason, where it was not measured


def read_gbench(paths: Sequence[Path], _device: int | None = None) -> Imported:
    """The records of all files. Raises RecordError with file and key for what is not the format."""
    files = read_files(paths)
    unread: list[str] = []
    records = [
        record_of(one, launch, len(files))
        for launch, file in enumerate(files)
        for one in _measurements(file, unread)
    ]
    return Imported(records, unread)


def _measurements(file: ForeignFile, unread: list[str]) -> Iterator[Measurement]:
    _require_version(file.top)
    context = _context(file)
    rows: list[_Row] = []
    for entry in rows_of(file.top, "benchmarks", unread):
        with listing(unread, str(entry.values.get("name", ""))):
            rows.append(_row(entry))
    benchmarks: dict[tuple[Any, ...], list[_Row]] = {}
    parameters: dict[str, set[tuple[int, ...]]] = {}
    for row in rows:
        benchmarks.setdefault((row.name, row.parameters, row.indices), []).append(row)
        parameters.setdefault(row.name, set()).add(row.parameters)
    seen: dict[str, int] = {}
    # In the order of the indices, since a program may run its benchmarks in another.
    for found in sorted(benchmarks.values(), key=lambda some: some[0].indices):
        case = told_apart(_case(found[0], parameters[found[0].name]), seen)
        yield _measurement(case, found, file, context, unread)


def _require_version(top: Part) -> None:
    for key in ("context", "benchmarks"):
        if key not in top.values:
            raise RecordError(f"{top.place}: has no {key}: not a JSON file of Google Benchmark")
    if top.read(Top).context.json_schema_version != SCHEMA_VERSION:
        raise top.error("context.json_schema_version", f"is not {SCHEMA_VERSION}, which is read")
    entries = top.values["benchmarks"]
    if isinstance(entries, list) and entries and not any(map(_has_type, entries)):
        raise RecordError(
            f"{top.place}: no benchmark has a run_type: written by a Google Benchmark of before"
            " 1.5, whose files do not say which rows are statistics of others; measure with a"
            " later one"
        )


def _has_type(entry: Any) -> bool:
    return isinstance(entry, dict) and "run_type" in entry


def _row(part: Part) -> _Row:
    entry = part.read(Entry)
    return _Row(
        part,
        entry.run_name or entry.name,
        tuple(getattr(entry, key) for key in PARAMETERS),
        tuple(getattr(entry, key) for key in INDICES),
        entry.repetition_index if entry.run_type == ITERATION else entry.aggregate_name,
        _problem(entry),
    )


def _case(row: _Row, of_name: set[tuple[int, ...]]) -> Case:
    """The name, and each parameter that not all of the name share."""
    case: Case = {"name": row.name}
    for index, parameter in enumerate(PARAMETERS):
        if len({one[index] for one in of_name}) > 1:
            case[parameter] = row.parameters[index]
    return case


def _context(file: ForeignFile) -> Json:
    """What all records of the file share."""
    context = file.top.read(Top).context
    cores = {} if context.num_cpus is None else {"cores": context.num_cpus}
    return {
        "context": {
            "gpu_missing": NO_GPU,
            "host": {"cpu": UNKNOWN, **cores},
            "options": {},
        },
        "imported": {
            "tool": "Google Benchmark",
            "file": file.name,
            **rest_of(file.top, "benchmarks"),
        },
        "started_at": _utc(context.date),
    }


def _measurement(
    case: Case, rows: Sequence[_Row], file: ForeignFile, shared: Json, unread: list[str]
) -> Measurement:
    name = rows[0].name
    imported = shared["imported"] | {"benchmarks": [dict(row.entry.values) for row in rows]}
    made: Json = shared | {
        "tool": "gbench",
        "family": name.partition("/")[0],
        "imported": imported,
        "notes": NOTES | ({"clock": MANUAL} if name.endswith("/manual_time") else {}),
    }
    timed, statistic = _timed(rows)
    if problem := _not_measured(rows, timed):
        outcome, reason = problem
        if reason == NOT_APART:
            places = ", ".join(row.entry.key for row in rows)
            unread.append(f"{file.top.place}: {places}: {reason} ({visible(name)})")
        return Measurement(case=case, outcome=outcome, reason=reason, **made)
    times, reasons = _times(timed, file, unread)
    if not times:
        return Measurement(case=case, outcome="failed", reason="; ".join(reasons), **made)
    if reasons:
        made["notes"] |= {"not read": "; ".join(reasons)}
    if statistic:
        made["notes"] |= {"windows": f"one window, the {statistic}: the file has no repetitions"}
        (window_s,) = (time_s for _, time_s in times)
        return Measurement(case=case | {"statistic": statistic}, windows_s=(window_s,), **made)
    counts = {count for count, _ in times}
    steps = counts.pop() if len(counts) == 1 else 1
    windows = tuple(steps * time_s for _, time_s in times)
    return Measurement(case=case, windows_s=windows, steps=steps, **made)


def _timed(rows: Sequence[_Row]) -> tuple[list[_Row], str]:
    """The repetitions; where there is none, one statistic of them, and its name."""
    by_part = {row.part: row for row in rows}
    statistic = next((one for one in STATISTICS if one in by_part), "")
    singles = [row for row in rows if isinstance(row.part, int)]
    return ([by_part[statistic]], statistic) if statistic and not singles else (singles, "")


def _not_measured(rows: Sequence[_Row], timed: Sequence[_Row]) -> tuple[str, str] | None:
    """Outcome and reason: the first thing that went wrong in any repetition."""
    parts = {row.part for row in rows}
    if len(parts) < len(rows):
        return "skipped", NOT_APART
    if not timed:
        return "skipped", f"the file has no time of it, only {', '.join(sorted(map(str, parts)))}"
    return next((row.problem for row in timed if row.problem), None)


def _problem(entry: Entry) -> tuple[str, str] | None:
    """Why it was not measured, in the tool's own words."""
    if entry.error_occurred:
        return "error", _line(entry.error_message) or "an error without a message"
    if entry.skipped:
        return "skipped", _line(entry.skip_message) or "skipped without a message"
    return None


def _times(
    rows: Sequence[_Row], file: ForeignFile, unread: list[str]
) -> tuple[list[tuple[int, float]], list[str]]:
    """Iterations and the time of one of each row, and why others have none."""
    times, reasons = [], []
    for row in rows:
        try:
            times.append(_timing(row.entry))
        except RecordError as error:
            reasons.append(reason_of(error, file))
            unread.append(f"{error} ({visible(row.name)})")
    return times, reasons


def _timing(part: Part) -> tuple[int, float]:
    """How many iterations, and the time of one."""
    value = part.values.get("real_time")
    if isinstance(value, str):  # NaN, as it is written
        raise part.error("real_time", f"is no time: {visible(value)!r}")
    timing = part.read(Timing)
    time_s = timing.real_time * SECONDS[timing.time_unit]
    if not 0 < time_s * timing.iterations < math.inf:
        raise part.error("real_time", f"is {timing.real_time:g}: no time was measured")
    return timing.iterations, time_s


def _line(text: str) -> str:
    return " ".join(text.split())


def _utc(date: str) -> str:
    """UTC where the date has a zone, as since 1.5.3; local time that says no zone is unknown."""
    try:
        moment = datetime.fromisoformat(date.replace("Z", "+00:00"))
    except ValueError:
        return UNKNOWN
    if moment.tzinfo is None:
        return UNKNOWN
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
