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
from typing import Any

import numpy as np

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
from gpulift.ground.errors import GpuliftError, RecordError
from gpulift.ground.text import visible
from gpulift.records.decode import converted
from gpulift.records.values import Integer

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
class Meta:
    """What a file says of itself: versions of all that wrote it, that of the format among them."""

    version: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Device:
    """A GPU; NVBench writes its facts beside these."""

    id: Integer
    name: str


@dataclass(frozen=True)
class Top:
    """What is read of a file, its rows apart; NVBench writes an empty list as null."""

    meta: Meta
    devices: tuple[Device, ...] | None = None


@dataclass(frozen=True)
class Axis:
    """A parameter of a state."""

    name: str
    value: str
    type: str = "string"


@dataclass(frozen=True)
class StateKey:
    """Which device and case a state is of."""

    device: Integer
    axis_values: tuple[Axis, ...] | None = None


@dataclass(frozen=True)
class Datum:
    """One value of a summary: all are texts."""

    name: str
    value: str


@dataclass(frozen=True)
class Summary:
    """A figure of a state."""

    tag: str
    data: tuple[Datum, ...] | None = None


@dataclass(frozen=True)
class StateFigures:
    """What was measured of a state."""

    is_skipped: bool = False
    skip_reason: str = ""
    summaries: tuple[Summary, ...] | None = None


@dataclass(frozen=True)
class _State:
    """One row of a file: of which benchmark and device it is."""

    part: Part
    bench: Part
    device: int
    case: Case

    @property
    def name(self) -> str:
        """As in `copy Device=0 T=F32`, for what is said of it."""
        return visible(f"{self.case['benchmark']} {self.part.values.get('name', '')}")


@dataclass(frozen=True)
class _Figure:
    """A summary, and where it stands."""

    summary: Summary
    part: Part

    def error(self, problem: str) -> RecordError:
        """What is wrong with its values."""
        return self.part.error("data", problem)

    def value(self, name: str = "value") -> str:
        """The value of that name."""
        values = [one.value for one in self.summary.data or () if one.name == name]
        if not values:
            raise self.error(f"of {visible(self.summary.tag)} has no {name}")
        return visible(values[0])

    def number(self) -> float:
        """Its value."""
        text = self.value()
        try:
            return float(text)
        except ValueError:
            told = visible(self.summary.tag)
            raise self.error(f"of {told} is not a number: {text!r}") from None

    def whole(self, name: str = "value") -> int:
        """A count among its values."""
        text = self.value(name)
        if not re.fullmatch(r"\d{1,15}", text):
            raise self.error(f"of {visible(self.summary.tag)} is not a count: {text!r}")
        return int(text)


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
    top = file.top
    if not {"benchmarks", "devices"} <= top.values.keys():
        raise RecordError(f"{top.place}: has no benchmarks and devices: not a JSON file of NVBench")
    if "meta" not in top.values:
        raise RecordError(
            f"{top.place}: has no meta.version: written by an NVBench of before 2022, whose files"
            f" are not read; this reads file version {FILE_VERSION}"
        )
    if top.read(Top).meta.version.get("json", {}).get("major") != FILE_VERSION:
        is_not = f"is not {FILE_VERSION}, the file version that is read"
        raise top.error("meta.version.json.major", is_not)


def _states(file: ForeignFile, unread: list[str]) -> list[_State]:
    """Each state of each benchmark; what does not say of which it is, is listed."""
    found: list[_State] = []
    for bench in _rows(file.top, "benchmarks", unread):
        with listing(unread, str(bench.values.get("name", ""))):
            name = converted(bench.values.get("name"), str, bench.place, bench.key_of("name"))
            for part in _rows(bench, "states", unread):
                with listing(unread, f"{name} {part.values.get('name', '')}"):
                    key = part.read(StateKey)
                    found.append(_State(part, bench, key.device, _case(name, key, part)))
    return found


def _device(files: Sequence[ForeignFile], states: Sequence[_State], asked: int | None) -> int:
    """A folder of records is of one device, as any run's is."""
    names = {
        device.id: visible(device.name)
        for file in files
        for device in file.top.read(Top).devices or ()
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
    about = rest_of(file.top, "benchmarks")
    context = _context(file, device)
    seen: dict[str, int] = {}
    for state in (one for one in states if one.device == device):
        case = told_apart(state.case, seen)
        made: Json = {
            "tool": "NVBench",
            "file": file.name,
            **about,
            "benchmark": rest_of(state.bench, "states"),
            "state": dict(state.part.values),
        }
        name = str(state.case["benchmark"])
        empty = Measurement("nvbench", name, case, context, made, notes=NOTES)
        try:
            yield _measurement(file, empty, state, unread)
        except RecordError as error:
            unread.append(f"{error} ({state.name})")
            yield replace(empty, outcome="failed", reason=reason_of(error, file))


def _measurement(
    file: ForeignFile, empty: Measurement, of: _State, unread: list[str]
) -> Measurement:
    """The empty one with its time, or with the reason why the file has none."""
    state = of.part.read(StateFigures)
    if state.is_skipped:
        reason = " ".join(state.skip_reason.split()) or "skipped without a reason"
        return replace(empty, outcome="skipped", reason=reason)
    summaries = {
        one.tag: _Figure(one, replace(of.part, key=of.part.key_of(f"summaries[{index}]")))
        for index, one in enumerate(state.summaries or ())
    }
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
                count = next((summaries[one].whole() for one in sizes if one in summaries), 1)
                summary = summaries[f"{where}/{statistic}"]
                return _aggregate(empty, clock, statistic, summary, count, lacking)
    known = ", ".join(f"{where}/{statistic}" for _, where, _ in CLOCKS for statistic in STATISTICS)
    return replace(empty, outcome="skipped", reason=f"the file has no time of it (none of {known})")


def _aggregate(
    empty: Measurement, clock: str, statistic: str, summary: _Figure, count: int, lacking: str
) -> Measurement:
    """One window: the mean is a total of all samples, the median a step of its own."""
    time_s = summary.number()
    steps = count if statistic == "mean" else 1
    if count < 1 or not 0 < time_s * steps < math.inf:
        raise summary.error("holds no positive time and number of samples")
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


def _samples(file: ForeignFile, summary: _Figure | None) -> tuple[tuple[float, ...], str]:
    """The times of a --jsonbin file, or why there are none.

    NVBench writes them to `<its JSON file>-bin/<number>.bin`. Of the path in the file only that
    number is used: a file must not choose what is read here. Where it could not write them, it
    names no file.
    """
    if summary is None:
        return (), ""
    values = {one.name: one.value for one in summary.summary.data or ()}
    if "filename" not in values:
        return (), "NVBench could not write the samples"
    number = PurePosixPath(values["filename"]).name
    if not re.fullmatch(r"\d{1,9}\.bin", number):
        raise summary.error(f"names no file of sample times: {visible(number)!r}")
    path = file.path.with_name(f"{file.path.name}-bin") / number
    try:
        data = path.read_bytes()
    except OSError:
        return (), f"{number} with the samples is missing"
    if len(data) != 4 * summary.whole("size"):
        raise RecordError(
            f"{file.top.place}: {number}: has {len(data)} bytes, for {values['size']} samples of 4"
        )
    times = np.frombuffer(data, "<f4").astype(np.float64)
    if not np.all(np.isfinite(times) & (times > 0)):
        raise RecordError(f"{file.top.place}: {number}: holds a time that is not positive")
    return tuple(float(one) for one in times), "" if len(times) else f"{number} holds no samples"


def _rows(part: Part, key: str, unread: list[str]) -> list[Part]:
    return [] if part.values.get(key) is None else rows_of(part, key, unread)


def _case(benchmark: str, state: StateKey, part: Part) -> Case:
    case: Case = {"benchmark": benchmark}
    for index, axis in enumerate(state.axis_values or ()):
        case[_free(axis.name, case)] = (
            _digits(axis, part, f"axis_values[{index}].value")
            if axis.type == "int64"
            else axis.value
        )
    return case


def _free(name: str, case: Mapping[str, object]) -> str:
    while name in case:
        name += "_"
    return name


def _context(file: ForeignFile, device: int) -> Json:
    made: Json = {"host": {"cpu": UNKNOWN}, "options": {}}
    for index, found in enumerate(file.top.read(Top).devices or ()):
        if found.id == device:
            raw = file.top.values["devices"][index]
            facts = {ours: raw[name] for ours, name in FACTS.items() if name in raw}
            return made | {"gpu": {"name": found.name, "card": "", **facts}}
    return made | {"gpu_missing": "unknown: the file does not describe the device"}


def _digits(axis: Axis, part: Part, key: str) -> int:
    if not re.fullmatch(r"-?\d{1,18}", axis.value):
        raise part.error(key, f"is not an integer: {visible(axis.value)!r}")
    return int(axis.value)
