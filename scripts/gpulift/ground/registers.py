"""What core/registers/ holds, which gpulift-bench embeds: roofs, peaks, names of slow-downs."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from gpulift.ground import place

FOLDER = place.FILES / "core" / "registers"


@cache
def register(name: str) -> Any:
    """`roofs`, `peaks` or `slowdowns`: each file says what it is and where its figures are from."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def roof(name: str) -> dict[str, Any]:
    """What is known of a roof; nothing where records name one that no register has."""
    known: dict[str, Any] = register("roofs")["roofs"].get(name, {})
    return known


def unit(name: str) -> str:
    """`B/s` or `FLOP/s`; of a name that only newer code knows, that of its family (`gemm/fp4` is of
    `gemm/`), else bytes."""
    family = name.partition("/")[0]
    of_family = (
        known["unit"]
        for other, known in register("roofs")["roofs"].items()
        if other.partition("/")[0] == family
    )
    return str(roof(name).get("unit") or next(of_family, "B/s"))


def slowdowns(kind: str) -> frozenset[str]:
    """Names of the reasons of a kind: `hardware`, `heat`, `power_limit` or `setting`."""
    reasons = register("slowdowns")["reasons"]
    return frozenset(reason for reason, of_kind in reasons.items() if of_kind == kind)
