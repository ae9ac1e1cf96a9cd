"""How fast this card trains whole models, in words."""

from __future__ import annotations

from gpulift.analysis.arms import item_rate
from gpulift.analysis.bounds import trained_model
from gpulift.analysis.doubts import NO_DOUBTS, Doubts
from gpulift.analysis.gains import FIRST_MODELS
from gpulift.analysis.ladder import Rung, rungs_of
from gpulift.analysis.standing import JOB
from gpulift.analysis.summary import Summary, Worth, roof_fraction
from gpulift.ground import text
from gpulift.verdicts.cases import Case

FORMATS = "precision/training_step"
TECHNIQUES = (JOB, FORMATS)  # the first that measured a model speaks of it


def answers(summary: Summary, doubts: Doubts = NO_DOUBTS) -> list[str]:
    """A line for each model that was measured; none where none was. In place of a ratio that an
    erratum withholds stands why."""
    found: dict[str, str] = {}
    for case in summary.cases:
        if case.technique == JOB and (rungs := rungs_of(case, doubts)):
            found[trained_model(case.first)] = _of_rungs(summary, case, rungs)
    for row in summary.worths_of(FORMATS):  # the fastest first
        if not row.case.first.is_control(row.arm):
            found.setdefault(trained_model(row.case.first), _of_pair(row, doubts))
    first = dict.fromkeys((*FIRST_MODELS, *found))
    return [found[model] for model in first if model in found]


def _of_rungs(summary: Summary, case: Case, rungs: tuple[Rung, ...]) -> str:
    best = max(rungs, key=lambda one: one.per_s.value)
    cost = case.arms[best.name][0].cost
    rate = item_rate(best.per_s.value, cost.item if cost else "")
    each = "; ".join(_rung(summary, case, one) for one in rungs)
    return f"{_name(case)} trains at {rate} in {best.name}: {each}."


def _rung(summary: Summary, case: Case, rung: Rung) -> str:
    """`compiled 146 ms a step, 71.7 % of gemm/bf16, 1.267× [1.265, 1.269] over bf16`."""
    arm, time_s = case.arms[rung.name][0], case.times_s[rung.name]
    share = roof_fraction(case.first.pace, case.arms[rung.name], summary.roofs)
    told = f"{rung.name} {text.seconds(time_s.value)} a step"
    if arm.cost and share is not None:
        told += f", {text.percent(share)} of {arm.cost.roof}"
    if (step := rung.before) is None:
        return told
    if step.why_not:
        return f"{told} (withheld: {step.grade.withheld})"
    return f"{told}, {text.speedup(step.speedup)} over {step.over}"


def _of_pair(row: Worth, doubts: Doubts) -> str:
    rate = f" at {item_rate(row.items_per_s.value, row.item)}" if row.items_per_s else ""
    share = ""
    if row.facts.cost and row.roof_fraction is not None:
        share = f", {text.percent(row.roof_fraction)} of {row.facts.cost.roof}"
    ratio = f": {text.speedup(row.pair.speedup)}"
    if withheld := doubts.withheld(row.case.measured, (row.arm, row.baseline)):
        ratio = f" (withheld: {withheld})"
    return (
        f"{_name(row.case)} trains{rate} in {row.arm},"
        f" {text.seconds(row.time_s.value)} a step{share}; in {row.baseline}"
        f" {text.seconds(row.baseline_time_s.value)}{ratio}."
    )


def _name(case: Case) -> str:
    model = trained_model(case.first)
    return FIRST_MODELS.get(model, model)
