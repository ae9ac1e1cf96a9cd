"""Seconds of each benchmark in the JSON file that Google Benchmark, NVBench or pytest-benchmark
wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Annotated, Any, TypeVar

from gpulift.gate.metrics import NoNumberError, Reading, Untimed
from gpulift.ground.errors import RecordError
from gpulift.ground.text import visible
from gpulift.records.decode import converted
from gpulift.records.values import Integer, Positive, among

Made = TypeVar("Made")

SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
ITERATION, AGGREGATE = "iteration", "aggregate"
STATISTICS = ("median", "mean")  # the first that is there; NVBench has a median since 2026
NVBENCH_VERSION = 1  # of its file, since 2022
CLOCKS = ("nv/cold/time/gpu", "nv/cpu_only/time/cpu")  # the first that is there


@dataclass(frozen=True)
class Benchmarks:
    """Seconds by the benchmark's name, and why others have no time."""

    seconds: dict[str, float] = field(default_factory=dict)
    untimed: dict[str, Untimed] = field(default_factory=dict)

    def leave_out(self, name: str, reason: str, *, skipped: bool = False) -> None:
        """Says why a benchmark has no time."""
        self.untimed[name] = Untimed(visible(" ".join(reason.split())), skipped)

    @property
    def rows(self) -> dict[str, Reading | Untimed]:
        """All of them. Raises NoNumberError where there is none."""
        timed = {name: Reading(time_s, "s") for name, time_s in self.seconds.items()}
        if not (timed or self.untimed):
            raise NoNumberError("no benchmark was run")
        return {**timed, **self.untimed}


@dataclass(frozen=True)
class GbenchEntry:
    """A repetition of a benchmark, or a statistic of its repetitions (Google Benchmark 1.5)."""

    name: str
    run_type: Annotated[str, among(ITERATION, AGGREGATE)]
    run_name: str = ""
    family_index: Integer = 0  # since 1.5.4
    per_family_instance_index: Integer = 0
    repetition_index: Integer = 0
    aggregate_name: str = ""
    time_unit: Annotated[str, among(*SECONDS)] = "ns"
    error_occurred: bool = False
    error_message: str = ""
    skipped: bool = False
    skip_message: str = ""

    @property
    def benchmark(self) -> tuple[str, int, int]:
        """Its name, which several benchmarks may share, and what tells these apart."""
        return self.run_name or self.name, self.family_index, self.per_family_instance_index

    @property
    def part(self) -> int | str:
        """Which of the benchmark's entries it is."""
        return self.repetition_index if self.run_type == ITERATION else self.aggregate_name


@dataclass(frozen=True)
class GbenchTime:
    """What an entry measured, in its unit."""

    real_time: Positive


@dataclass(frozen=True)
class NvbenchAxis:
    """A parameter of a state."""

    name: str
    value: str


@dataclass(frozen=True)
class NvbenchDatum:
    """A value of a summary: all are texts."""

    name: str
    value: str


@dataclass(frozen=True)
class NvbenchSummary:
    """A figure of a state."""

    tag: str
    data: tuple[NvbenchDatum, ...] | None = None


@dataclass(frozen=True)
class NvbenchState:
    """A benchmark with values of its axes on a device; an empty list is null."""

    device: Integer
    axis_values: tuple[NvbenchAxis, ...] | None = None
    is_skipped: bool = False
    skip_reason: str = ""
    summaries: tuple[NvbenchSummary, ...] | None = None


def read_gbench(file: Path) -> Benchmarks:
    """Of each benchmark the median of its repetitions, else the file's own median or mean; of
    several with one name the later ones are counted. NaN, which Google Benchmark writes as it is,
    is no time. Raises NoNumberError."""
    entries: dict[tuple[str, int, int], list[tuple[GbenchEntry, Mapping[str, Any]]]] = {}
    for raw in _objects(_document(file).get("benchmarks"), file):
        if "run_type" not in raw:
            raise NoNumberError(
                f"{file.name}: a benchmark has no run_type, as of a Google Benchmark before 1.5"
            )
        entry = _converted(raw, GbenchEntry, file)
        entries.setdefault(entry.benchmark, []).append((entry, raw))
    found = Benchmarks()
    for (name, _, _), own in sorted(entries.items(), key=lambda one: one[0][1:]):
        _add_gbench(found, _free(name, found), own)
    return found


def _add_gbench(
    found: Benchmarks, name: str, entries: Sequence[tuple[GbenchEntry, Mapping[str, Any]]]
) -> None:
    parts = {entry.part: (entry, raw) for entry, raw in entries}
    if len(parts) < len(entries):
        found.leave_out(name, "nothing in the file tells several benchmarks of this name apart")
        return
    timed = [one for part, one in parts.items() if isinstance(part, int)]
    timed = timed or [parts[one] for one in STATISTICS if one in parts][:1]
    if not timed:
        found.leave_out(name, f"the file has only its {', '.join(sorted(map(str, parts)))}")
        return
    times_s = []
    for entry, raw in timed:
        if entry.error_occurred or entry.skipped:
            why = entry.error_message or entry.skip_message or "without a reason"
            found.leave_out(name, why, skipped=not entry.error_occurred)
            return
        try:
            time = converted(raw, GbenchTime, "an entry").real_time
        except RecordError as error:  # NaN, or no time at all
            found.leave_out(name, str(error))
            return
        times_s.append(time * SECONDS[entry.time_unit])
    found.seconds[name] = median(times_s)


def read_nvbench(file: Path) -> Benchmarks:
    """Of each state the time on the GPU, of benchmarks of the processor alone that there. States
    are named by their axes, and by their device where there are several. Raises NoNumberError."""
    document = _document(file)
    try:
        version = document["meta"]["version"]["json"]["major"]
    except (KeyError, TypeError):
        version = None
    if version != NVBENCH_VERSION:
        raise NoNumberError(f"{file.name}: is of no version that is read ({NVBENCH_VERSION})")
    states = [
        (str(benchmark.get("name")), _converted(state, NvbenchState, file))
        for benchmark in _objects(document.get("benchmarks") or [], file)
        for state in _objects(benchmark.get("states") or [], file)
    ]
    several = len({state.device for _, state in states}) > 1
    found = Benchmarks()
    for benchmark, state in states:
        device = (f"device:{state.device}",) if several else ()
        axes = (f"{axis.name}:{axis.value}" for axis in state.axis_values or ())
        name = _free("/".join((f"benchmark:{benchmark}", *axes, *device)), found)
        texts = {
            summary.tag: datum.value
            for summary in state.summaries or ()
            for datum in summary.data or ()
            if datum.name == "value"
        }
        tags = [f"{clock}/{statistic}" for clock in CLOCKS for statistic in STATISTICS]
        text = next((texts[tag] for tag in tags if tag in texts), "")
        if state.is_skipped or not text:
            why = state.skip_reason or f"has none of {', '.join(tags)}"
            found.leave_out(name, why, skipped=state.is_skipped)
        else:
            _add(found, name, text)
    return found


def read_pytest(file: Path, said: str = "") -> Benchmarks:
    """The median of each test, of which several may not have one name. `said` is what pytest wrote
    to its streams. Raises NoNumberError."""
    found = Benchmarks()
    try:
        for one in json.loads(file.read_bytes())["benchmarks"]:
            name = visible(one["fullname"])
            if name in found.seconds:
                found.leave_out(name, "several tests have this name")
            else:
                _add(found, name, one["stats"]["median"])
    except (OSError, ValueError, KeyError, TypeError):
        warned = re.findall(r"PytestBenchmarkWarning: (.+)", said)
        told = [line for line in said.splitlines() if line.strip()]
        why = visible((warned or told or ["it says nothing"])[-1].strip())
        raise NoNumberError(f"pytest wrote no report of benchmarks: {why}") from None
    return found


def _document(file: Path) -> Mapping[str, Any]:
    try:
        document = json.loads(file.read_bytes(), strict=False)
    except OSError as error:
        raise NoNumberError(f"{file.name}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise NoNumberError(f"{file.name}: is no JSON: {error}") from None
    return _object(document, file)


def _objects(values: object, file: Path) -> Iterable[Mapping[str, Any]]:
    if not isinstance(values, list):
        raise NoNumberError(f"{file.name}: has no list of benchmarks")
    return (_object(value, file) for value in values)


def _object(value: object, file: Path) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise NoNumberError(f"{file.name}: holds {type(value).__name__} in place of an object")
    return value


def _converted(raw: Mapping[str, Any], kind: type[Made], file: Path) -> Made:
    try:
        return converted(raw, kind, file.name)
    except RecordError as error:
        raise NoNumberError(str(error)) from None


def _free(name: str, taken: Benchmarks) -> str:
    """The name, counted where another benchmark has it."""
    count, counted = 1, visible(name)
    while counted in taken.seconds or counted in taken.untimed:
        count += 1
        counted = f"{visible(name)} #{count}"
    return counted


def _add(found: Benchmarks, name: str, time: object) -> None:
    """With its time in seconds, if that is one."""
    try:
        found.seconds[name] = converted({"real_time": float(str(time))}, GbenchTime, name).real_time
    except (ValueError, RecordError):
        found.leave_out(name, f"{time!r} is no time above 0")
