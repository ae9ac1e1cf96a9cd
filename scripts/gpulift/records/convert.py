"""Turns the JSON object of a record into dataclasses, in C, where nothing is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import ValidationError, convert

from gpulift.records.model import Range, Record, Telemetry


@dataclass(frozen=True)
class _Check:
    meaning: str = ""


@dataclass(frozen=True)
class _Renamed:
    """What a line has under another name than the record."""

    arm: str = ""
    check: _Check = _Check()


def converted(raw: Mapping[str, Any]) -> Record | None:
    """The record, without its place and the facts of its context; None where it may be wrong.

    It need not be: imported records and numbers beyond 63 bits are left to `parse.carefully`, too.
    """
    try:
        record = convert(raw, Record)
        renamed = convert(raw, _Renamed)
        if record.telemetry is not None:
            _set_ranges(record.telemetry, raw["telemetry"])
        others = raw.get("telemetry_others", ())
        for telemetry, one in zip(record.telemetry_others, others, strict=True):
            _set_ranges(telemetry, one)
    except ValidationError:
        return None
    for windows in (arm.windows for arm in record.arms):
        for used in (windows.energy_j, windows.cpu_s):
            if used and len(used) != len(windows.host_s):
                return None
    vars(record).update(check_meaning=renamed.check.meaning, duet_arm=renamed.arm)
    return record


def _set_ranges(telemetry: Telemetry, raw: Mapping[str, Any]) -> None:
    """Whatever of its object is an object itself."""
    ranges = {key: one for key, one in raw.items() if isinstance(one, dict)}
    vars(telemetry)["ranges"] = convert(ranges, dict[str, Range])
