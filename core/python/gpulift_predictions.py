"""What a technique predicts in numbers, a case a line.

    model:gpt2/gpus:2 @h100: ddp 1.85-1.95, zero_1 0.9-1.0
    model:llama_1b @h200: bf16 175-200 ms, fp16 7-9
    @cpu: threads 1.2-1.5
    threads 1.0-1.5

In front of the colon stand values of axes, joined as in the id of a case, and behind @ a part of a
machine's name in results/; what is left out is any. Behind it an arm has its range over the
baseline, both ends included, or with a unit (s, ms, us) that of its step's time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

PLACE = re.compile(r"([^\s@]*) ?(?:@(\S+))?")
RANGE = re.compile(r"([a-z0-9_]+) (\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)(?: (s|ms|us))?")
EXPONENTS = {"s": "e0", "ms": "e-3", "us": "e-6"}  # so that a time is rounded once

Json = dict[str, Any]


def predictions_in(
    lines: Iterable[str], sweep: Mapping[str, Iterable[Any]], arms: Sequence[str]
) -> list[Json]:
    """One for each range, as manifests have them; raises ValueError for the author."""
    found = [one for line in lines for one in _of_line(line, sweep)]
    other = next((one["arm"] for one in found if one["arm"] not in arms), None)
    if other is not None:
        raise ValueError(f"names {other!r}, which is no arm")
    return found


def _of_line(line: str, sweep: Mapping[str, Iterable[Any]]) -> list[Json]:
    head, _, ranges = line.rpartition(": ")
    place = PLACE.fullmatch(head)
    if place is None:
        raise ValueError(f"has {head!r} in front of a colon, which is no 'axis:8 @h100'")
    case, machine = place.groups()
    values = dict(_value(part, sweep) for part in case.split("/")) if case else {}
    shared = {"case": values, **({"on": machine} if machine else {})}
    return [_range(part, shared) for part in ranges.split(", ")]


def _value(part: str, sweep: Mapping[str, Iterable[Any]]) -> tuple[str, Any]:
    axis, _, text = part.partition(":")
    for value in sweep.get(axis, ()):
        if str(value) == text:
            return axis, value
    raise ValueError(f"asks for {part}, not in its sweep")


def _range(part: str, shared: Json) -> Json:
    match = RANGE.fullmatch(part)
    if match is None:
        raise ValueError(f"has {part!r}, which is no 'arm 1.8-2.2' and no 'arm 1.8-2.2 ms'")
    arm, *ends, unit = match.groups()
    low, high = (_number(end, EXPONENTS.get(unit, "")) for end in ends)
    if not 0 < low <= high < math.inf:
        raise ValueError(f"has {part!r}, whose ends are not above 0 and in their order")
    return {"arm": arm, **shared, "step_time_s" if unit else "speedup": [low, high]}


def _number(text: str, exponent: str) -> float:
    return float(text + exponent) if exponent or "." in text else int(text)
