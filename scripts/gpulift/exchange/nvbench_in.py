"""Imports the JSON of NVBench (file version 1, written since 2022): a file is a launch.

The format: json_printer.cu of https://github.com/NVIDIA/nvbench. It writes all values of summaries
as text, and, for --jsonbin, the sample times as little-endian float32 beside the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import numpy as np

from gpulift.errors import GpuliftError, RecordError
from gpulift.exchange.foreign import (
    ForeignFile,
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
from gpulift.records.fields import Fields
from gpulift.text import visible

FILE_VERSION = 1
SAMPLES = "nv/json/bin:nv/cold/sample_times"
# Where statistics are, and the possible names of the number of samples, by the clock.
CLOCKS = (
    ("device", "nv/cold/time/gpu", ("nv/cold/sample_size", "nv/cold/time/gpu/sample_size")),
    ("host", "nv/cpu_only/time/cpu", ("nv/cpu_only/sample_size",)),
)
STATISTICS = ("median", "mean")  # the first that is there; the median since 2026
FACTS = {
    "memory_bytes": "global_memory_size",
    "multiprocessors": "number_of_sms",
    "l2_bytes": "l2_cache_size",
    "memory_bus_bits": "global_memory_bus_width",
    "ecc": "ecc_state",
}
NOTES = {"unknown": "which card of the model, driver, CUDA, processor, build, and the date"}
ISOLATED = "of isolated runs: NVBench cleared the L2 cache before each"


@dataclass(frozen=True)
class _State:
    """One row of a file: of which benchmark and device it is."""

    fields: Fields
    bench: Fields
    device: int
    case: Case

    @property
    def name(self) -> str:
        """As in `copy Device=0 T=F32`, for what is said of it."""
        return visible(f"{self.case['benchmark']} {self.fields.values.get('name', '')}")


def read_nvbench(paths: Sequence[Path], device: int | None = None) -> Imported:
    """The records of one device of all files.

    Raises GpuliftError where there are several devices and none is chosen, and RecordError, with
    file and key, for what is not the format.
    """
    files = read_files(paths)
    unread: list[str] = []
    for file in files:
        _require_version(file)
    states = [_states(file, unread) for file in files]
    chosen = _device(files, [state for found in states for state in found], device)
    records = [
        record_of(one, launch, len(files))
        for launch, (file, found) in enumerate(zip(files, states, strict=True))
        for one in _measurements(file, found, chosen, unread)
    ]
    return Imported(records, unread)


def _require_version(file: ForeignFile) -> None:
    top = file.fields
    if not top.has("benchmarks") or not top.has("devices"):
        raise RecordError(f"{top.place}: has no benchmarks and devices: not a JSON file of NVBench")
    if not top.has("meta"):
        raise RecordError(
            f"{top.place}: has no meta.version: written by an NVBench of before 2022, whose files"
            f" are not read; this reads file version {FILE_VERSION}"
        )
    version = top.child("meta").child("version").child("json")
    if version.whole("major") != FILE_VERSION:
        raise version.error("major", f"is not {FILE_VERSION}, the file version that is read")


def _states(file: ForeignFile, unread: list[str]) -> list[_State]:
    """Each state of each benchmark; what does not say of which it is, is listed."""
    found: list[_State] = []
    for bench in _rows(file.fields, "benchmarks", unread):
        with listing(unread, str(bench.values.get("name", ""))):
            name = bench.text("name")
            for state in _rows(bench, "states", unread):
                with listing(unread, f"{name} {state.values.get('name', '')}"):
                    case = _case(name, state)
                    found.append(_State(state, bench, state.whole("device"), case))
    return found


def _device(files: Sequence[ForeignFile], states: Sequence[_State], asked: int | None) -> int:
    """A folder of records is of one device, as any run's is."""
    names = {
        one.whole("id"): visible(one.text("name"))
        for file in files
        for one in _list(file.fields, "devices")
    }
    used = sorted({state.device for state in states})
    shown = ", ".join(f"{id} ({names.get(id, UNKNOWN)})" for id in used)
    if not used:  # no row could be read
        return -1
    if asked is not None and asked not in used:
        raise GpuliftError(f"--device {asked}: nothing was measured on it, only on {shown}")
    if asked is None and len(used) > 1:
        raise GpuliftError(f"the files hold devices {shown}: choose one with --device")
    return used[0] if asked is None else asked


def _measurements(
    file: ForeignFile, states: Sequence[_State], device: int, unread: list[str]
) -> Iterator[Measurement]:
    about = rest_of(file.fields, "benchmarks")
    context = _context(file, device)
    seen: dict[str, int] = {}
    for state in (one for one in states if one.device == device):
        case = told_apart(state.case, seen)
        made: Json = {
            "tool": "NVBench",
            "file": file.name,
            **about,
            "benchmark": rest_of(state.bench, "states"),
            "state": dict(state.fields.values),
        }
        empty = Measurement("nvbench", state.bench.text("name"), case, context, made, notes=NOTES)
        try:
            yield _measurement(file, empty, state, unread)
        except RecordError as error:
            unread.append(f"{error} ({state.name})")
            yield replace(empty, outcome="failed", reason=reason_of(error, file))


def _measurement(
    file: ForeignFile, empty: Measurement, of: _State, unread: list[str]
) -> Measurement:
    """The empty one with its time, or with the reason why the file has none."""
    state = of.fields
    if state.flag("is_skipped", False):
        reason = " ".join(state.text("skip_reason", "").split()) or "skipped without a reason"
        return replace(empty, outcome="skipped", reason=reason)
    summaries = {one.text("tag"): one for one in _list(state, "summaries")}
    try:
        samples, lacking = _samples(file, summaries.get(SAMPLES))
    except RecordError as error:
        unread.append(f"{error} ({of.name})")
        samples, lacking = (), reason_of(error, file)
    if samples:
        said = f"all {len(samples)} samples, each a window"
        notes = NOTES | {"windows": said, "times": ISOLATED}
        return replace(empty, clock="device", windows_s=samples, notes=notes)
    for clock, where, sizes in CLOCKS:
        for statistic in STATISTICS:
            if f"{where}/{statistic}" in summaries:
                count = next((_whole(summaries[one]) for one in sizes if one in summaries), 1)
                summary = summaries[f"{where}/{statistic}"]
                return _aggregate(empty, clock, statistic, summary, count, lacking)
    known = ", ".join(f"{where}/{statistic}" for _, where, _ in CLOCKS for statistic in STATISTICS)
    return replace(empty, outcome="skipped", reason=f"the file has no time of it (none of {known})")


def _aggregate(
    empty: Measurement, clock: str, statistic: str, summary: Fields, count: int, lacking: str
) -> Measurement:
    """One window: the mean is a total of all samples, the median a step of its own."""
    time_s = _number(summary)
    steps = count if statistic == "mean" else 1
    if count < 1 or not 0 < time_s * steps < math.inf:
        raise summary.error("data", "holds no positive time and number of samples")
    lacking = lacking or "the single ones are not in the file"
    said = f"one window: the {statistic} of {count} samples; {lacking}"
    return replace(
        empty,
        case={**empty.case, _free("statistic", empty.case): statistic},
        clock=clock,
        windows_s=(time_s * steps,),
        steps=steps,
        notes=NOTES | {"windows": said} | ({"times": ISOLATED} if clock == "device" else {}),
    )


def _samples(file: ForeignFile, summary: Fields | None) -> tuple[tuple[float, ...], str]:
    """The times of a --jsonbin file, or why there are none.

    NVBench writes them to `<its JSON file>-bin/<number>.bin`. Of the path in the file only that
    number is used: a file must not choose what is read here. Where it could not write them, it
    names no file.
    """
    if summary is None:
        return (), ""
    values = {one.text("name"): one.text("value") for one in _list(summary, "data")}
    if "filename" not in values:
        return (), "NVBench could not write the samples"
    number = PurePosixPath(values["filename"]).name
    if not re.fullmatch(r"\d{1,9}\.bin", number):
        raise summary.error("data", f"names no file of sample times: {visible(number)!r}")
    path = file.path.with_name(f"{file.path.name}-bin") / number
    try:
        data = path.read_bytes()
    except OSError:
        return (), f"{number} with the samples is missing"
    if len(data) != 4 * _whole(summary, "size"):
        raise RecordError(
            f"{file.fields.place}: {number}: has {len(data)} bytes, for {values['size']} samples"
            " of 4"
        )
    times = np.frombuffer(data, "<f4").astype(np.float64)
    if not np.all(np.isfinite(times) & (times > 0)):
        raise RecordError(f"{file.fields.place}: {number}: holds a time that is not positive")
    return tuple(float(one) for one in times), "" if len(times) else f"{number} holds no samples"


def _list(fields: Fields, key: str) -> list[Fields]:
    """NVBench writes an empty list as null."""
    return [] if fields.values.get(key) is None else fields.children(key)


def _rows(fields: Fields, key: str, unread: list[str]) -> list[Fields]:
    return [] if fields.values.get(key) is None else rows_of(fields, key, unread)


def _case(benchmark: str, state: Fields) -> Case:
    case: Case = {"benchmark": benchmark}
    for axis in _list(state, "axis_values"):
        name = _free(axis.text("name"), case)
        case[name] = axis.text("value")
        if axis.text("type", "string") == "int64":
            case[name] = _digits(axis, "value")
    return case


def _free(name: str, case: Mapping[str, object]) -> str:
    while name in case:
        name += "_"
    return name


def _context(file: ForeignFile, device: int) -> Json:
    found = next((d for d in _list(file.fields, "devices") if d.whole("id") == device), None)
    made: Json = {"host": {"cpu": UNKNOWN}, "options": {}}
    if found is None:
        return made | {"gpu_missing": "unknown: the file does not describe the device"}
    facts = {ours: found.values[name] for ours, name in FACTS.items() if found.has(name)}
    return made | {"gpu": {"name": found.text("name"), "card": "", **facts}}


def _number(summary: Fields) -> float:
    text = _value(summary)
    try:
        return float(text)
    except ValueError:
        raise summary.error("data", f"{_of(summary)} is not a number: {text!r}") from None


def _whole(summary: Fields, name: str = "value") -> int:
    text = _value(summary, name)
    if not re.fullmatch(r"\d{1,15}", text):
        raise summary.error("data", f"{_of(summary)} is not a count: {text!r}")
    return int(text)


def _value(summary: Fields, name: str = "value") -> str:
    values = [one.text("value") for one in _list(summary, "data") if one.text("name") == name]
    if not values:
        raise summary.error("data", f"{_of(summary)} has no {name}")
    return visible(values[0])


def _of(summary: Fields) -> str:
    return f"of {visible(summary.text('tag'))}"


def _digits(fields: Fields, key: str) -> int:
    text = fields.text(key)
    if not re.fullmatch(r"-?\d{1,18}", text):
        raise fields.error(key, f"is not an integer: {visible(text)!r}")
    return int(text)
