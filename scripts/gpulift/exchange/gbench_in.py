"""Imports the JSON of Google Benchmark: a file is a launch, a repetition in it a window.

The format: https://github.com/google/benchmark/blob/main/docs/user_guide.md#output-formats, and
src/json_reporter.cc of 1.5 to 1.9.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gpulift.errors import RecordError
from gpulift.exchange.foreign import ForeignFile, read_files
from gpulift.exchange.imported import UNKNOWN, Json, Measurement, record_of
from gpulift.records.fields import Fields

SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
NO_GPU = "none is named: a file of Google Benchmark never does"
NOTES = {
    "unknown": "GPU, driver, processor model, build, and the order of the benchmarks",
    "repetitions": "a file is a launch, the repetitions in it are windows",
}
MANUAL = "the benchmark's own (manual time); what kind of clock it is, is unknown"


def read_gbench(paths: Sequence[Path], _device: int | None = None) -> list[Json]:
    """The records of all files. Raises RecordError with file and key for what is not the format."""
    files = read_files(paths)
    return [
        record_of(one, launch, len(files))
        for launch, file in enumerate(files)
        for one in _measurements(file)
    ]


def _measurements(file: ForeignFile) -> Iterator[Measurement]:
    top = file.fields
    for key in ("context", "benchmarks"):
        if not top.has(key):
            raise RecordError(f"{top.place}: has no {key}: not a JSON file of Google Benchmark")
    about = {key: value for key, value in top.values.items() if key != "benchmarks"}
    found: dict[str, list[Fields]] = {}
    for entry in top.children("benchmarks"):
        found.setdefault(entry.text("run_name", "") or entry.text("name"), []).append(entry)
    for name, entries in found.items():
        yield _measurement(name, entries, file, about)


def _measurement(
    name: str, entries: Sequence[Fields], file: ForeignFile, about: Json
) -> Measurement:
    context = file.fields.child("context")
    made: dict[str, Any] = {
        "tool": "gbench",
        "family": name.partition("/")[0],
        "case": {"name": name},
        "context": {
            "gpu_missing": NO_GPU,
            "host": {"cpu": UNKNOWN, **_cores(context)},
            "options": {},
        },
        "imported": {
            "tool": "Google Benchmark",
            "file": file.name,
            **about,
            "benchmarks": [dict(entry.values) for entry in entries],
        },
        "started_at": _utc(context.text("date", UNKNOWN)),
    }
    runs = [one for one in entries if one.text("run_type", "iteration") != "aggregate"]
    outcome, reason = _outcome(runs)
    notes = NOTES | ({"clock": MANUAL} if name.endswith("/manual_time") else {})
    if outcome != "ok":
        return Measurement(**made, notes=notes, outcome=outcome, reason=reason)
    times = [one.number("real_time") * _unit(one) for one in runs]
    counts = {_iterations(one) for one in runs}
    steps = counts.pop() if len(counts) == 1 else 1
    windows = tuple(steps * time for time in times)
    if not all(0 < window_s < math.inf for window_s in windows):
        raise runs[0].error("real_time", "is beyond any time, here or in a repetition")
    return Measurement(**made, notes=notes, windows_s=windows, steps=steps)


def _outcome(runs: Sequence[Fields]) -> tuple[str, str]:
    """The first thing that went wrong in any repetition, with the tool's own words."""
    if not runs:
        return "skipped", "the file holds only aggregates of it, and no single repetition"
    for one in runs:
        if one.flag("error_occurred", False):
            return "error", _line(one.text("error_message", "")) or "an error without a message"
        if one.flag("skipped", False):
            return "skipped", _line(one.text("skip_message", "")) or "skipped without a message"
        if one.number("real_time") <= 0:
            return "failed", f"real_time is {one.number('real_time'):g}: no time was measured"
    return "ok", ""


def _line(text: str) -> str:
    return " ".join(text.split())


def _iterations(one: Fields) -> int:
    count = one.whole("iterations", 1)
    if count < 1:
        raise one.error("iterations", "must be 1 or more")
    return count


def _unit(one: Fields) -> float:
    name = one.text("time_unit", "ns")
    if name not in SECONDS:
        raise one.error("time_unit", f"must be one of {', '.join(SECONDS)}, not {name!r}")
    return SECONDS[name]


def _cores(context: Fields) -> Json:
    cores = context.maybe_whole("num_cpus")
    return {} if cores is None else {"cores": cores}


def _utc(date: str) -> str:
    """UTC where the date has a zone, as since 1.5.3; local time that says no zone is unknown."""
    try:
        moment = datetime.fromisoformat(date.replace("Z", "+00:00"))
    except ValueError:
        return UNKNOWN
    if moment.tzinfo is None:
        return UNKNOWN
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
