"""Turns the JSON object of a record into dataclasses; what is wrong or missing is named."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from msgspec.json import encode
from zstandard import compress

from gpulift.ground.errors import RecordError
from gpulift.records.decode import converted
from gpulift.records.model import (
    IMPORT,
    NO_BUILD,
    Arm,
    Context,
    Cost,
    Outcome,
    Range,
    Record,
    Telemetry,
)
from gpulift.records.values import SMALLEST, Error, Maybe, about

SCHEMA_MAJOR = 1
# What records had of a path until 2026-11-29, and have: whoever guesses one knows it by its hash.
HASHED = {
    "environment": (re.compile(r".*#[0-9a-f]{8}\b.*"), "set"),
    "build": (re.compile(r"#[0-9a-f]{8}\b"), "#"),
}
LEVEL = 1  # of compression in memory: two fifths of the size, in 28 µs a record


@dataclass(frozen=True)
class Check:
    """What the result of each arm was compared with, and how near it had to be."""

    meaning: str = ""
    tolerance: Maybe[Error] = None


@dataclass(frozen=True)
class Renamed:
    """What a line has under another name than the record."""

    arm: Annotated[str, about("duet: the technique's arm that both builds ran")] = ""
    check: Check = field(default_factory=Check)


def read_record(
    raw: Mapping[str, Any],
    file: Path = Path(),
    line: int = 0,
    contexts: dict[bytes, Context] | None = None,
    written: bytes | None = None,
) -> Record:
    """One record from its JSON object, which was `written` so. `file` and `line` appear in errors.

    Records of the same machine and build share one Context where `contexts` is given.
    """
    place = f"{file}:{line}"
    _require_known_schema(raw, place)
    written = json.dumps(raw).encode() if written is None else written
    raw = {key: _without_hashes(told) if key == "context" else told for key, told in raw.items()}
    record = converted(raw, Record, place)
    renamed = converted(raw, Renamed, place)
    if record.telemetry is not None:
        _set_ranges(record.telemetry, raw["telemetry"], place)
    others = raw.get("telemetry_others", ())
    for telemetry, other in zip(record.telemetry_others, others, strict=True):
        _set_ranges(telemetry, other, place)
    vars(record).update(  # before anybody else has it
        written=_kept(written),
        file=file,
        line=line,
        context=_shared(_with_facts(record.context, raw["context"]), raw, contexts),
        check_meaning=renamed.check.meaning,
        duet_arm=renamed.arm,
    )
    _require_consistent(record)
    return record


def read_context(raw: Mapping[str, Any], place: str) -> Context:
    """Machine facts; the same object that `gpulift-bench --describe` prints."""
    return _with_facts(converted(raw, Context, place), raw)


def _kept(line: bytes) -> bytes:
    """Compressed, as a copy: the compressor's own bytes begin a block as long as the line, of which
    the rest would be lost."""
    return bytes(memoryview(compress(line, LEVEL)))


def _set_ranges(telemetry: Telemetry, raw: Mapping[str, Any], place: str) -> None:
    """Whatever of its object is an object itself."""
    vars(telemetry)["ranges"] = {
        key: converted(value, Range, place, f"telemetry.{key}")
        for key, value in raw.items()
        if isinstance(value, dict)
    }


def _with_facts(context: Context, raw: Mapping[str, Any]) -> Context:
    """With the whole objects of it, of host and of GPUs beside what is read of them."""
    vars(context)["facts"] = raw
    vars(context.host)["facts"] = raw["host"]
    if context.gpu:
        vars(context.gpu)["facts"] = raw["gpu"]
    for gpu, facts in zip(context.gpus, raw.get("gpus", ()), strict=True):
        vars(gpu)["facts"] = facts
    return context


def _without_hashes(context: Any) -> Any:
    if not isinstance(context, dict):
        return context
    return {k: _unhashed(v, *HASHED[k]) if k in HASHED else v for k, v in context.items()}


def _unhashed(told: Any, path: re.Pattern[str], instead: str) -> Any:
    if isinstance(told, dict):
        return {key: _unhashed(value, path, instead) for key, value in told.items()}
    return path.sub(instead, told) if isinstance(told, str) else told


def _shared(
    context: Context, raw: Mapping[str, Any], contexts: dict[bytes, Context] | None
) -> Context:
    """The first context of this spelling (since True == 1 == 1.0)."""
    return context if contexts is None else contexts.setdefault(encode(raw["context"]), context)


def _require_known_schema(raw: Mapping[str, Any], place: str) -> None:
    """Before anything else: what another major version has under these names is unknown."""
    version = raw.get("schema")
    if not isinstance(version, str):
        raise RecordError(f"{place}: schema must be major.minor")
    major, _, minor = version.partition(".")
    if not (major.isdecimal() and minor.isdecimal()):
        raise RecordError(f"{place}: schema must be major.minor, not {version!r}")
    if int(major) != SCHEMA_MAJOR:
        raise RecordError(
            f"{place}: schema is {version}, but this gpulift reads {SCHEMA_MAJOR}.x; use the"
            " version that wrote it"
        )


def _require_consistent(record: Record) -> None:
    """No two arms share a name; every measured one has as many windows as the order gave it.

    A skip says why: without a reason nobody knows what would have to change.
    """
    place = f"{record.file}:{record.line}"
    if record.kind != IMPORT:
        _require_origin(record, place)
    _require_reason(f"{place}: reason", record.outcome, record.reason)
    for index, arm in enumerate(record.arms):
        _require_reason(f"{place}: arms[{index}].reason", arm.outcome, arm.reason)
        _require_measurable(arm, f"{place}: arms[{index}]")
        for name, values in (("energy_j", arm.windows.energy_j), ("cpu_s", arm.windows.cpu_s)):
            if values and len(values) != len(arm.windows.host_s):
                raise RecordError(
                    f"{place}: arms[{index}].windows.{name} must have an entry for each window"
                )
    if len({arm.name for arm in record.arms}) != len(record.arms):
        raise RecordError(f"{place}: arms must have different names")
    if record.outcome == "ok":
        _require_windows(record, place)


def _require_origin(record: Record, place: str) -> None:
    """The build and the seed, without which nobody could measure it again."""
    if record.context.build == NO_BUILD:
        raise RecordError(f"{place}: context.build is missing")
    if record.order is not None and record.order.seed is None:
        raise RecordError(f"{place}: order.seed is missing")


def _require_windows(record: Record, place: str) -> None:
    if not record.arms or record.order is None:
        raise RecordError(f"{place}: outcome is ok, but there are no arms or no order")
    turns = record.order.turns
    if not turns.keys() <= set(range(len(record.arms))):
        raise RecordError(f"{place}: order.blocks names an arm that is not there")
    for index, arm in enumerate(record.arms):
        count = sum(turns.get(index, ()))
        if arm.outcome == "ok" and len(arm.window_s) != count:
            raise RecordError(
                f"{place}: arms[{index}].windows has {len(arm.window_s)} {arm.clock} windows, but"
                f" the order has {count}"
            )


def _require_measurable(arm: Arm, place: str) -> None:
    """What is not 0 is large enough to divide by."""
    windows, cost = arm.windows, arm.cost or Cost()
    amounts: Mapping[str, Iterable[float | None]] = {
        "windows.sm_clock_hz": windows.sm_clock_hz,
        "windows.energy_j": windows.energy_j,
        "windows.cpu_s": windows.cpu_s,
        "cost": (abs(cost.bytes), abs(cost.flops), abs(cost.items)),
    }
    for name, values in amounts.items():
        least = min(filter(None, values), default=SMALLEST)
        if least < SMALLEST:
            raise RecordError(f"{place}.{name} has {least:g}, which nothing can measure")


def _require_reason(named: str, outcome: Outcome, reason: str) -> None:
    if outcome == "skipped" and not reason.strip():
        raise RecordError(f"{named} must say why it was skipped")
