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
from gpulift.records.model import Arm
from gpulift.verdicts import stats
from gpulift.verdicts.cases import Case

# The emulated step takes the time of ResNet-50's; older records have another batch of it.
MODELS = {
    "emulated": "ResNet-50",
    "resnet50_256": "ResNet-50",
    "resnet50": "ResNet-50",
    "vit_l16": "ViT-L/16",
}
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
        _answer(MODELS[model], case, rungs)
        for case in cases
        if (model := str(case.first.case.get("model"))) in MODELS
        and len(rungs := rungs_of(case)) > 1
    ]


def rungs_of(case: Case) -> list[Rung]:
    """The arms of a case that say what their loader makes and what the step alone takes, from the
    naive one upwards; none where the case is no ladder."""
    rungs = []
    for name, launches in case.arms.items():
        step_s = statistics.median(arm.metrics.get("step_alone_s", 0.0) for arm in launches)
        per_core_s = statistics.median(map(_per_core_s, launches))
        batch = _batch(case)
        per_s = stats.rate_over(launches, stats.items)
        if per_s is None or 0 in (batch, step_s, per_core_s):
            continue
        rungs.append(
            Rung(
                name,
                per_s,
                per_core_s,
                batch / step_s,
            )
        )
    return rungs


def _per_core_s(arm: Arm) -> float:
    """Images that a core of the loader makes in a second; 0 where the record does not tell."""
    image_s = arm.metrics.get("loader_cpu_s_per_image", 0.0)
    # Older records have the rate.
    return 1 / image_s if image_s else arm.metrics.get("loader_images_per_cpu_s", 0.0)


def _batch(case: Case) -> float:
    """Images of a step; 0 where the record does not tell."""
    noted = case.first.notes.get("batch", "")
    return float(noted) if noted.isdecimal() else 0.0


def _answer(model: str, case: Case, rungs: list[Rung]) -> str:
    naive, best = rungs[0], max(rungs, key=lambda rung: rung.per_s.value)
    gains = [
        (after.per_s.value / before.per_s.value, after.name)
        for before, after in itertools.pairwise(rungs)
    ]
    gain, rung = max(gains)
    notes = case.first.notes
    found = (
        f"{model}: {notes.get('cores', '?')} cores feed {text.around(best.per_s)} images/s"
        f" ({best.name}), the naive loop {text.around(naive.per_s)};"
        f" {rung} brings most, {text.ratio(gain)}."
    )
    step = f"The step ({notes.get('step', '?')}) takes {text.digits(best.step_per_s)} images/s:"
    if best.per_s.value >= FED * best.step_per_s:
        return f"{found} {step} it is not short of data."
    cores = math.ceil(best.step_per_s / best.per_core_s)
    return f"{found} {step} that needs some {cores} cores like these."
