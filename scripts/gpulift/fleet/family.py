"""All nodes' cards and roofs as one family: which of them stands out below the others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from gpulift.analysis.machine.siblings import ENOUGH_CARDS
from gpulift.analysis.machine.spread import Limits, Spread, limits, logs_of, spread_of


@dataclass(frozen=True, slots=True)
class Seen:
    """A rate of a card, or of a node in pairs or groups; `near` is the end of its interval that is
    the higher one, none of one launch."""

    node: str
    card: str
    model: str
    check: str
    unit: str
    value: float
    near: float | None
    tolerance: float | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """A rate among the others: a fraction from their median, and in robust standard deviations.

    `nearness` is the share of the distance from which on one stands out.
    """

    seen: Seen
    deviation: float
    distance: float
    nearness: float
    named: bool


@dataclass(frozen=True)
class Roof:
    """How far sound ones of a model lie apart in a check, and by what fraction one is named."""

    model: str
    check: str
    unit: str
    count: int
    median: float
    below: float  # robust standard deviation, of logs
    smallest: float


@dataclass(frozen=True)
class Family:
    """Each rate's place, and the checks that were judged."""

    places: tuple[Place, ...] = ()
    roofs: tuple[Roof, ...] = ()


def family_of(every: Iterable[Seen]) -> Family:
    """Those of checks that three or more of a model have."""
    checks: dict[tuple[str, str], list[Seen]] = {}
    for one in every:
        checks.setdefault((one.model, one.check), []).append(one)
    enough = {key: rates for key, rates in sorted(checks.items()) if len(rates) >= ENOUGH_CARDS}
    tests = sum(map(len, enough.values()))
    places: list[Place] = []
    roofs = []
    for (model, check), rates in enough.items():
        logs = logs_of([one.value for one in rates])
        spread = spread_of(logs)
        needed = limits(len(rates), tests, max((one.tolerance or 0.0) for one in rates))
        places += _places(rates, spread, needed)
        median, smallest = math.exp(spread.center), _smallest(spread, needed)
        roofs.append(Roof(model, check, rates[0].unit, len(rates), median, spread.below, smallest))
    return Family(tuple(places), tuple(roofs))


def _places(rates: Sequence[Seen], spread: Spread, needed: Limits) -> list[Place]:
    logs = logs_of([one.value for one in rates])
    near = logs_of([math.inf if one.near is None else one.near for one in rates])
    off, distances = np.expm1(logs - spread.center), spread.distances(logs)
    away = -np.expm1(near - spread.center) > needed.least
    named = (distances < -needed.far) & away
    columns = (off.tolist(), distances.tolist(), (-distances / needed.far).tolist(), named.tolist())
    return [Place(*row) for row in zip(rates, *columns, strict=True)]


def _smallest(spread: Spread, needed: Limits) -> float:
    return max(-math.expm1(-needed.far * spread.below), needed.least)
