"""The main facts of models side by side, in words."""

from __future__ import annotations

from gpulift.analysis import cost
from gpulift.analysis.bounds import bound_of
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


def shown(fact: Fact, cell: ModelFigure) -> str:
    """`211123 [209569, 212657] tokens/s`, `832 TFLOP/s [791 TFLOP/s, 1.01 PFLOP/s]`."""
    one = cell.value
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
