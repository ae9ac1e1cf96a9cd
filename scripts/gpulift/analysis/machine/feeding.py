"""How many images a second this host can feed to a training step, in words."""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import dataclass

from gpulift.analysis.summary import Summary
from gpulift.engine import quick
from gpulift.ground import text
from gpulift.ground.estimate import Estimate
from gpulift.verdicts import stats
from gpulift.verdicts.cases import Case

MODEL = "resnet50"
FED = 0.95  # of the step's own rate: no loader can bring more


@dataclass(frozen=True)
class Rung:
    """An arm of the ladder: what the loop trained on, and what a core of its loader makes."""

    name: str
    per_s: Estimate
    per_core_s: float
    step_per_s: float  # what the step alone takes


def answers(summary: Summary) -> list[str]:
    """A line for each number of cores that was measured; none where the ladder was not."""
    cases = [case for case in summary.cases if case.technique == quick.FEEDING]
    return [
        _answer(case, rungs)
        for case in cases
        if case.first.case.get("model") == MODEL and len(rungs := rungs_of(case)) > 1
    ]


def rungs_of(case: Case) -> list[Rung]:
    """The arms of a case that say what their loader makes and what the step alone takes, from the
    naive one upwards; none where the case is no ladder."""
    rungs = []
    for name, launches in case.arms.items():
        cost = launches[0].cost
        metrics = {
            key: statistics.median(arm.metrics.get(key, 0.0) for arm in launches)
            for key in ("loader_images_per_cpu_s", "step_alone_s")
        }
        batch = _batch(case)
        if cost is None or batch == 0 or not all(metrics.values()):
            continue
        rungs.append(
            Rung(
                name,
                stats.rate(case.times_s[name], cost.items),
                metrics["loader_images_per_cpu_s"],
                batch / metrics["step_alone_s"],
            )
        )
    return rungs


def _batch(case: Case) -> float:
    """Images of a step; 0 where the record does not tell."""
    noted = case.first.notes.get("batch", "")
    return float(noted) if noted.isdecimal() else 0.0


def _answer(case: Case, rungs: list[Rung]) -> str:
    naive, best = rungs[0], max(rungs, key=lambda rung: rung.per_s.value)
    gains = [
        (after.per_s.value / before.per_s.value, after.name)
        for before, after in itertools.pairwise(rungs)
    ]
    gain, rung = max(gains)
    notes = case.first.notes
    found = (
        f"ResNet-50: {notes.get('cores', '?')} cores feed {text.around(best.per_s)} images/s"
        f" ({best.name}), the naive loop {text.around(naive.per_s)};"
        f" {rung} brings most, {text.ratio(gain)}."
    )
    step = f"The step ({notes.get('step', '?')}) takes {text.digits(best.step_per_s)} images/s:"
    if best.per_s.value >= FED * best.step_per_s:
        return f"{found} {step} it is not short of data."
    cores = math.ceil(best.step_per_s / best.per_core_s)
    return f"{found} {step} that needs some {cores} cores like these."
