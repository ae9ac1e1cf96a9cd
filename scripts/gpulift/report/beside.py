"""The main facts of models side by side, in words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpulift.analysis import cost
from gpulift.analysis.bounds import bound_of
from gpulift.analysis.ladder import Ladder, Rung
from gpulift.analysis.over_runs import ModelFigure
from gpulift.analysis.side_by_side import USD, Fact, SideBySide
from gpulift.ground import text
from gpulift.ground.estimate import Estimate

NO_STEP = (
    "No training step of a language model was measured as the same work on two of them:"
    " ./gpulift run job/step on each measures one."
)
NO_PRICE = "Add --usd-per-hour MODEL=PRICE for each to see the cost per token."
PRICED = "USD are those of the prices that were given."


@dataclass(frozen=True)
class Ladders:
    """What a model's settings reach on several machines: of each setting the rung of each, None
    where it was not measured."""

    model: str
    machines: tuple[str, ...]
    ladders: tuple[Ladder, ...]
    rows: tuple[tuple[str, tuple[Rung | None, ...]], ...]


def ladders(found: Iterable[tuple[str, Ladder]]) -> tuple[Ladders, ...]:
    """Of models that two machines or more have, by the machines' names; the settings in the order
    of the longest."""
    models: dict[str, dict[str, Ladder]] = {}
    for machine, one in found:
        models.setdefault(one.model, {}).setdefault(machine, one)
    return tuple(_ladders(model, each) for model, each in models.items() if len(each) > 1)


def _ladders(model: str, found: dict[str, Ladder]) -> Ladders:
    longest = sorted(found.values(), key=lambda one: -len(one.rungs))
    names = dict.fromkeys(rung.name for one in longest for rung in one.rungs)
    rungs = [{rung.name: rung for rung in one.rungs} for one in found.values()]
    rows = ((name, tuple(of.get(name) for of in rungs)) for name in names)
    return Ladders(model, tuple(found), tuple(found.values()), tuple(rows))


def shown(fact: Fact, cell: ModelFigure) -> str:
    """`211123 [209569, 212657] tokens/s`, `832 TFLOP/s [791 TFLOP/s, 1.01 PFLOP/s]`, `1.2×`."""
    one = cell.value
    if not fact.unit:
        return text.speedup(one)
    if fact.unit == USD:
        return f"{cost.money(one)} USD"
    value, *ends = (text.rate(found, fact.unit) for found in (one.value, *_ends(one)))
    unit = value.partition(" ")[2]
    if ends and all(end.endswith(f" {unit}") for end in ends):
        numbers = [end.removesuffix(f" {unit}") for end in ends]
        return f"{value.partition(' ')[0]} [{', '.join(numbers)}] {unit}"
    return f"{value} [{', '.join(ends)}]" if ends else value


def basis(fact: Fact, cell: ModelFigure) -> str:
    """`15 runs, 12 cards`, `one run`, and of a step what bounds it."""
    bound = bound_of(cell.records, fact.arm).shown if fact.arm else ""
    return "; ".join(filter(None, (cell.basis, f"bound by {bound}" if bound else "")))


def notes(beside: SideBySide) -> str:
    """What is missing, and what gives it."""
    if not beside.step:
        return NO_STEP
    return PRICED if beside.priced else NO_PRICE


def _ends(one: Estimate) -> list[float]:
    return [end for end in (one.low, one.high) if end is not None]
