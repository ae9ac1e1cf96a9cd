"""Whether launches that a budget still holds can tell what those so far do not: where they cannot,
a gate of a command ends as it would at the end of the budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from gpulift.gate.evidence import COMMANDS, Evidence, Row
from gpulift.gate.judge import RowResult, plan_of, values
from gpulift.ground.estimate import CONFIDENCE
from gpulift.ground.text import counted
from gpulift.verdicts.decision import (
    AIM,
    GO_ON,
    SLOWER,
    Difference,
    GatePlan,
    Margins,
    paired,
    screen,
)

MOST_LAUNCHES = 1000  # that are ever advised


def why_stop(
    rows: Sequence[Row],
    series: str,
    evidence: Evidence,
    looks: Sequence[int],
    allows: Callable[[int], bool],
) -> str:
    """Why none of the looks at these rows would tell anything; empty where one may. The first has
    the launches so far, and there is time for those of which `allows` the launches more."""
    if evidence.setup.mode != COMMANDS:
        return ""
    plan, held = plan_of(evidence), evidence.of(series)
    taken, *later = looks
    later = [look for look in later if look > taken and allows(look - taken)]
    for row in rows if later else ():
        first, second = (values(stage.get(row, ())) for stage in (held.first, held.second))
        if _may_tell(first, second, evidence.setup.margins(row), plan, later[-1]):
            return ""
    if not later:
        return ""  # which is the end of the budget itself
    return (
        f"stopped early: {counted(taken, 'launch', 'launches')} of {series} vary so much that"
        f" {later[-1]}, the most that the budget holds, would tell no more"
    )


def needed(judged: RowResult, one: Difference, plan: GatePlan) -> tuple[int | None, float]:
    """How many launches would tell a row, None of too many, and from which effect on: of one that
    looks changed its own, by fresh launches behind those that it was flagged by."""
    flagged, least = judged.verdict.unconfirmed, judged.margins.least
    effect = max(AIM * least, abs(one.change) if flagged else 0.0)
    count = one.launches_to_see(effect, plan.look_alpha, least, MOST_LAUNCHES)
    if count is None or not flagged:
        return count, effect
    look = next((look for look in plan.looks if look >= max(count, len(judged.second) + 1)), None)
    return look and len(judged.first) + look, effect


def _may_tell(
    first: Sequence[float], second: Sequence[float], margins: Margins, plan: GatePlan, most: int
) -> bool:
    """If so many launches of the stage that goes on varied as those so far: with the usual power,
    would they show what a gate aims at, or the largest change that is left open? Or that there is
    none, where one is to be confirmed?"""
    screened = screen(first, margins, plan)
    if screened is not None and screened.state == GO_ON:
        aim = max(AIM * margins.least, _open_change(screened.look))
        return _shows(screened.look, aim, plan.screen_look_alpha, 0.0, most)
    one = paired(second)
    if screened is None or one is None:
        return True
    mean = one.log_mean if screened.state == SLOWER else -one.log_mean
    error = one.standard_error * math.sqrt(one.base_launches / most)
    clears = mean + one.quantile(0.5 + CONFIDENCE / 2) * error < math.log1p(margins.least)
    return clears or _shows(one, _open_change(one), plan.look_alpha, margins.least, most)


def _open_change(one: Difference) -> float:
    ratio = one.ratio
    ends = [end for end in (ratio.low, ratio.high) if end]
    return max(max(end, 1 / end) for end in ends) - 1


def _shows(one: Difference, effect: float, alpha: float, least: float, most: int) -> bool:
    return one.launches_to_see(effect, alpha, least, most) is not None
