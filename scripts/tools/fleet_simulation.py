"""Fleets simulated from the records of a model: whom the rule of siblings names in them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpulift.analysis.machine.measured import measured_checks
from gpulift.analysis.machine.outliers import Values, limits, spread_of
from gpulift.analysis.machine.results import WORTH_FAILING, Limits
from gpulift.analysis.reference import find_reference
from gpulift.analysis.summary import summarise
from gpulift.engine import machine
from gpulift.records.files import stem_of
from gpulift.records.read import runs_of

SEED = 53
CEILINGS = "ceiling."
ENOUGH = 8  # runs of a roof, to draw from


@dataclass(frozen=True)
class Roof:
    """Runs of one roof: log rates about their median, and half their intervals on that scale."""

    id: str
    logs: Values
    halves: Values
    tolerance: float | None

    @property
    def deviation(self) -> float:
        """Standard deviation over runs."""
        return float(np.std(self.logs, ddof=1))


Draw = Callable[[Roof, int, np.random.Generator], tuple[Values, Values]]


def recorded(roof: Roof, count: int, random: np.random.Generator) -> tuple[Values, Values]:
    """Log rates and halves of intervals of so many cards."""
    return _of_runs(roof, random.standard_normal(count), random)


def recorded_t5(roof: Roof, count: int, random: np.random.Generator) -> tuple[Values, Values]:
    """The same with noise of long tails."""
    return _of_runs(roof, _student(count, random), random)


def normal(roof: Roof, count: int, random: np.random.Generator) -> tuple[Values, Values]:
    """Normal rates."""
    return _around(roof, random.standard_normal(count), random)


def normal_t5(roof: Roof, count: int, random: np.random.Generator) -> tuple[Values, Values]:
    """Rates of long tails."""
    return _around(roof, _student(count, random), random)


RECORDED = "recorded"
DRAWS: Mapping[str, Draw] = {
    RECORDED: recorded,
    "recorded, t(5)": recorded_t5,
    "normal": normal,
    "t(5)": normal_t5,
}


def _of_runs(roof: Roof, noise: Values, random: np.random.Generator) -> tuple[Values, Values]:
    chosen = random.integers(roof.logs.size, size=noise.size)
    width = 1.06 * roof.deviation * roof.logs.size**-0.2
    return roof.logs[chosen] + width * noise, roof.halves[chosen]


def _around(roof: Roof, noise: Values, random: np.random.Generator) -> tuple[Values, Values]:
    return roof.deviation * noise, random.choice(roof.halves, size=noise.size)


def _student(count: int, random: np.random.Generator) -> Values:
    """Of unit variance."""
    values: Values = random.standard_t(5, count) * math.sqrt(3 / 5)
    return values


def named(logs: Values, halves: Values, needed: Limits) -> Values:
    """Log deviations of those that stand out below the others; 0 of all others."""
    spread = spread_of(logs)
    off = logs - spread.center
    near = -np.expm1(np.minimum(off + halves, 0))
    return np.where((spread.distances(logs) < -needed.far) & (near > needed.least), off, 0.0)


@dataclass(frozen=True)
class Shares:
    """Of how many sound fleets a card was named, and failed."""

    fleets: int
    named: int
    failed: int


def false_names(roofs: Sequence[Roof], draw: Draw, cards: int, fleets: int) -> Shares:
    """Of sound fleets."""
    random = np.random.default_rng(SEED)
    needed = [limits(cards, cards * len(roofs), roof.tolerance) for roof in roofs]
    hits = failed = 0
    for _ in range(fleets):
        off = [
            named(*draw(roof, cards, random), one) for roof, one in zip(roofs, needed, strict=True)
        ]
        hits += any(one.any() for one in off)
        failed += any((np.expm1(one) < -WORTH_FAILING).any() for one in off)
    return Shares(fleets, hits, failed)


def found(roof: Roof, roofs: int, cards: int, slower: Sequence[float], fleets: int) -> list[float]:
    """Shares of fleets in which one card that is so much slower is named."""
    random = np.random.default_rng(SEED)
    needed = limits(cards, cards * roofs, roof.tolerance)
    hits = np.zeros(len(slower))
    for _ in range(fleets):
        logs, halves = recorded(roof, cards, random)
        sound = logs[0]
        for number, one in enumerate(slower):
            logs[0] = sound + math.log1p(-one)
            hits[number] += named(logs, halves, needed)[0] < 0
    return [float(share) for share in hits / fleets]


def roofs_of(files: Iterable[Path], model: str) -> list[Roof]:
    """Of the runs that these record files are of, each apart."""
    stems: dict[Path, set[str]] = {}
    for file in files:
        if stem_of(file).startswith(CEILINGS):
            stems.setdefault(file.parent, set()).add(stem_of(file))
    values: dict[str, list[tuple[float, float]]] = {}
    for folder, names in sorted(stems.items()):
        for run in runs_of([folder], names):
            for check in measured_checks(summarise(run)):
                one = check.estimate
                if check.roof and one.launches > 2 and one.high is not None:
                    pair = (math.log(one.value), math.log(one.high / one.value))
                    values.setdefault(check.id, []).append(pair)
    known = find_reference(machine.checkout_root() / "results", model)
    tolerances = {id: entry.tolerance for id, entry in known.measured.items()} if known else {}
    return [
        _roof(id, runs, tolerances.get(id))
        for id, runs in sorted(values.items())
        if len(runs) >= ENOUGH
    ]


def _roof(id: str, runs: Sequence[tuple[float, float]], tolerance: float | None) -> Roof:
    logs, halves = np.asarray(runs).T
    return Roof(id, logs - np.median(logs), halves, tolerance)
