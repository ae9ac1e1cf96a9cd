"""Imports the JSON of NVBench (file version 1, written since 2022): a file is a launch.

The format: json_printer.cu of https://github.com/NVIDIA/nvbench. It writes all values of summaries
as text, and, for --jsonbin, the sample times as little-endian float32 beside the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from gpulift.errors import GpuliftError, RecordError
from gpulift.exchange.foreign import ForeignFile, read_files
from gpulift.exchange.imported import UNKNOWN, Json, Measurement, record_of
from gpulift.records.fields import Fields
from gpulift.text import visible

FILE_VERSION = 1
SAMPLES = "nv/json/bin:nv/cold/sample_times"
# Mean, and the possible names of its number of samples, by the clock; the first that is there.
MEANS = (
    (
        "device",
        "nv/cold/time/gpu/mean",
        ("nv/cold/sample_size", "nv/cold/time/gpu/sample_size"),
    ),
    ("host", "nv/cpu_only/time/cpu/mean", ("nv/cpu_only/sample_size",)),
)
FACTS = {
    "memory_bytes": "global_memory_size",
    "multiprocessors": "number_of_sms",
    "l2_bytes": "l2_cache_size",
    "memory_bus_bits": "global_memory_bus_width",
    "ecc": "ecc_state",
}
NOTES = {"unknown": "which card of the model, driver, CUDA, processor, build, and the date"}
ISOLATED = "of isolated runs: NVBench cleared the L2 cache before each"

Case = dict[str, int | float | str]


def read_nvbench(paths: Sequence[Path], device: int | None = None) -> list[Json]:
    """The records of one device of all files.

    Raises GpuliftError where there are several devices and none is chosen, and RecordError, with
    file and key, for what is not the format.
    """
    files = read_files(paths)
    for file in files:
        _require_version(file)
    chosen = _device(files, device)
    return [
        record_of(one, launch, len(files))
        for launch, file in enumerate(files)
        for one in _measurements(file, chosen)
    ]


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


def _device(files: Sequence[ForeignFile], asked: int | None) -> int:
    """A folder of records is of one device, as any run's is."""
    names = {
        one.whole("id"): visible(one.text("name"))
        for file in files
        for one in _list(file.fields, "devices")
    }
    used = sorted({state.whole("device") for file in files for _, state in _states(file)})
    shown = ", ".join(f"{id} ({names.get(id, UNKNOWN)})" for id in used)
    if asked is not None and asked not in used:
        raise GpuliftError(f"--device {asked}: nothing was measured on it, only on {shown}")
    if asked is None and len(used) > 1:
        raise GpuliftError(f"the files hold devices {shown}: choose one with --device")
    if asked is None and not used:
        return -1
    return used[0] if asked is None else asked


def _measurements(file: ForeignFile, device: int) -> Iterator[Measurement]:
    about = {key: value for key, value in file.fields.values.items() if key != "benchmarks"}
    context = _context(file, device)
    seen: dict[str, int] = {}
    for bench, state in _states(file):
        if state.whole("device") != device:
            continue
        case = _case(bench, state)
        count = seen[str(case)] = seen.get(str(case), 0) + 1
        if count > 1:  # the same values of all axes again
            case["again"] = count
        rest = {key: value for key, value in bench.values.items() if key != "states"}
        imported = {
            "tool": "NVBench",
            "file": file.name,
            **about,
            "benchmark": rest,
            "state": dict(state.values),
        }
        yield _measurement(file, bench.text("name"), case, state, context, imported)


def _measurement(
    file: ForeignFile, name: str, case: Case, state: Fields, context: Json, imported: Json
) -> Measurement:
    if state.flag("is_skipped", False):
        reason = " ".join(state.text("skip_reason", "").split()) or "skipped without a reason"
        return Measurement(
            "nvbench",
            name,
            case,
            context,
            imported,
            outcome="skipped",
            reason=reason,
            notes=NOTES,
        )
    summaries = {one.text("tag"): one for one in _list(state, "summaries")}
    for clock, mean, sizes in MEANS:
        if mean not in summaries:
            continue
        mean_s = _number(summaries[mean], mean)
        count = next((_whole(summaries[tag], tag) for tag in sizes if tag in summaries), 1)
        samples, said = _samples(file, summaries.get(SAMPLES)) if clock == "device" else ((), "")
        windows = samples or (mean_s * count,)
        if count < 1 or not all(0 < window_s < math.inf for window_s in windows):
            raise summaries[mean].error("data", "holds no positive time and number of samples")
        said = said or f"one window: the mean of {count} samples; the single ones are not in it"
        return Measurement(
            "nvbench",
            name,
            case,
            context,
            imported,
            clock=clock,
            windows_s=windows,
            steps=1 if samples else count,
            notes=NOTES | {"windows": said} | ({"times": ISOLATED} if clock == "device" else {}),
        )
    known = ", ".join(mean for _, mean, _ in MEANS)
    return Measurement(
        "nvbench",
        name,
        case,
        context,
        imported,
        outcome="skipped",
        reason=f"the file has no time of it (none of {known})",
        notes=NOTES,
    )


def _samples(file: ForeignFile, summary: Fields | None) -> tuple[tuple[float, ...], str]:
    """The times of a --jsonbin file, and what is to be said of them.

    NVBench writes them to `<its JSON file>-bin/<number>.bin`. Of the path in the file only that
    number is used: a file must not choose what is read here.
    """
    if summary is None:
        return (), ""
    values = {one.text("name"): one.text("value") for one in summary.children("data")}
    number = PurePosixPath(values.get("filename", "")).name
    if not re.fullmatch(r"\d{1,9}\.bin", number):
        raise summary.error("data", f"names no file of sample times: {visible(number)!r}")
    path = file.path.with_name(f"{file.path.name}-bin") / number
    try:
        data = path.read_bytes()
    except OSError:
        return (), f"one window, of the mean: {visible(str(path.name))} with the samples is missing"
    if len(data) != 4 * _whole(summary, SAMPLES, "size"):
        raise RecordError(
            f"{visible(str(path))}: has {len(data)} bytes, for {values.get('size')} samples of 4"
        )
    times = np.frombuffer(data, "<f4").astype(np.float64)
    if not np.all(np.isfinite(times) & (times > 0)):
        raise RecordError(f"{visible(str(path))}: holds a time that is not positive")
    return tuple(float(one) for one in times), f"all {len(times)} samples, each a window"


def _states(file: ForeignFile) -> list[tuple[Fields, Fields]]:
    """Each benchmark with each of its states."""
    return [
        (bench, state)
        for bench in _list(file.fields, "benchmarks")
        for state in _list(bench, "states")
    ]


def _list(fields: Fields, key: str) -> list[Fields]:
    """NVBench writes an empty list as null."""
    return [] if fields.values.get(key) is None else fields.children(key)


def _case(bench: Fields, state: Fields) -> Case:
    case: Case = {"benchmark": bench.text("name")}
    for axis in _list(state, "axis_values"):
        name = axis.text("name")
        while name in case:
            name += "_"
        case[name] = axis.text("value")
        if axis.text("type", "string") == "int64":
            case[name] = _digits(axis, "value")
    return case


def _context(file: ForeignFile, device: int) -> Json:
    found = next((d for d in _list(file.fields, "devices") if d.whole("id") == device), None)
    made: Json = {"host": {"cpu": UNKNOWN}, "options": {}}
    if found is None:
        return made | {"gpu_missing": "unknown: the file does not describe the device"}
    facts = {ours: found.values[name] for ours, name in FACTS.items() if found.has(name)}
    return made | {"gpu": {"name": found.text("name"), "card": "", **facts}}


def _number(summary: Fields, tag: str) -> float:
    text = _value(summary, tag)
    try:
        return float(text)
    except ValueError:
        raise summary.error("data", f"of {tag} is not a number: {text!r}") from None


def _whole(summary: Fields, tag: str, name: str = "value") -> int:
    text = _value(summary, tag, name)
    if not re.fullmatch(r"\d{1,15}", text):
        raise summary.error("data", f"of {tag} is not a count: {text!r}")
    return int(text)


def _value(summary: Fields, tag: str, name: str = "value") -> str:
    values = [one.text("value") for one in summary.children("data") if one.text("name") == name]
    if not values:
        raise summary.error("data", f"of {tag} has no {name}")
    return visible(values[0])


def _digits(fields: Fields, key: str) -> int:
    text = fields.text(key)
    if not re.fullmatch(r"-?\d{1,18}", text):
        raise fields.error(key, f"is not an integer: {visible(text)!r}")
    return int(text)
