"""Reads an ordinary line of JSON, and hashes it, in a quarter of the time that `json` takes.

orjson differs from `json` in this: of a key that is there twice it takes the last, an integer
beyond 64 bits becomes a float, and some floats and texts are spelled otherwise. So whatever is not
ordinary is left to the careful way, and those floats are spelled anew.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

import orjson

SMALL = "0.0000"  # orjson goes on with digits where Python, below 1e-4, has an exponent
EXPONENT = "e-"  # of which Python has two digits, at least
LARGE = re.compile(r"\de[+\d]")  # from 1e16
SHORTEST = len(":1e16")  # of what is spelled otherwise
DELETE = b"\x7f"  # which `json` escapes

canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def parsed(line: bytes) -> dict[str, Any] | None:
    """The object of a line of plain ASCII without escapes; None of any other line."""
    if b"\\" in line or DELETE in line or not line.isascii():
        return None
    try:
        raw = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return raw if isinstance(raw, dict) else None


def sha256(raw: Mapping[str, Any], line: bytes) -> str | None:
    """Of the canonical JSON of a record that was `parsed` from this line, in hexadecimal.

    None where a key is there twice, and where a number may be an integer beyond 64 bits.
    """
    try:
        text = orjson.dumps(raw, option=orjson.OPT_SORT_KEYS).decode()
    except orjson.JSONEncodeError:  # values are nested too deeply
        return None
    parts = text.split('"')  # without escapes, every second one is a text
    if len(parts) - 1 != line.count(b'"'):
        return None
    for number, one in enumerate(parts[::2]):
        if len(one) < SHORTEST:
            continue
        if "e" in one:
            if one.count("e") > one.count(EXPONENT) and LARGE.search(one):
                return None
            if EXPONENT in one:
                one = parts[2 * number] = _with_two_digits(one)
        if SMALL in one:
            parts[2 * number] = _with_exponents(one)
    return hashlib.sha256('"'.join(parts).encode()).hexdigest()


def _with_two_digits(numbers: str) -> str:
    """`1.5e-7` as `1.5e-07`."""
    first, *others = numbers.split(EXPONENT)
    return EXPONENT.join([first, *[one if one[1:2].isdigit() else f"0{one}" for one in others]])


def _with_exponents(numbers: str) -> str:
    """`0.000012` as `1.2e-05`; the end of a larger number, as in `10.00001`, as it is."""
    first, *others = numbers.split(SMALL)
    spelled = [first]
    for one in others:
        if one.startswith("0") or spelled[-1][-1:].isdigit():
            spelled.append(f"{SMALL}{one}")
            continue
        digits = len(one) - len(one.lstrip("0123456789"))
        point = "." if digits > 1 else ""
        spelled.append(f"{one[0]}{point}{one[1:digits]}e-05{one[digits:]}")
    return "".join(spelled)
