"""From launch values to a verdict; pure functions, and the only place that decides.

METHOD.md beside this file has every quantity and formula with its source; the names of its
sections appear in the paths that verdicts carry. All differences are of the natural logarithm of
times, head minus base: above 0 the head is slower. One launch (a process) gives one value;
repetitions inside it never count as more.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import scipy

from gpulift.ground import steps
from gpulift.ground.estimate import CONFIDENCE, Estimate
from gpulift.ground.steps import step
from gpulift.verdicts.row import BROKEN, FAILED, LEFT_OUT, OPEN, PASSED, Row

DECISION_METHOD = "2"

IMPROVED = "improved"
EQUIVALENT = "equivalent"
REGRESSED = "regressed"
INCONCLUSIVE = "inconclusive"
SKIPPED = "skipped"
ERROR = "error"
KINDS = {  # of rows, worst first
    ERROR: BROKEN,
    REGRESSED: FAILED,
    INCONCLUSIVE: OPEN,
    IMPROVED: PASSED,
    EQUIVALENT: PASSED,
    SKIPPED: LEFT_OUT,
}
WORST_FIRST = tuple(KINDS)

EQUIVALENCE_ALPHA = 0.05  # of each of the two one-sided tests
AIM = 2.0  # times the least change: a screen goes on until it would have seen this much
FAMILY_ALPHA = 0.01  # chance of one false regression or more in a whole comparison
POWER = 0.9  # of the smallest effect that would have been seen
LARGEST_SHOWN = 10.0  # of the smallest effects
LARGEST_LOG = math.log(1e6)  # changes beyond a million-fold are shown as that: exp() overflows
MOST_OF_THEM = 0.75  # of the rows, for which a smaller change is promised
SMALLEST_ERROR = 1e-6  # of a mean log ratio: timers resolve no more, equal launches are no proof

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Margins:
    """`least`: the smallest relative change that is called one; `equivalent`: what still counts as
    no change. Both as fractions."""

    least: float
    equivalent: float = 0.01

    def asked(self, least: float | None) -> Margins:
        """With the least change that a user cares about in a row: a smaller one is none to them, so
        that it widens what counts as no change, too."""
        if least is None:
            return self
        return Margins(least, max(self.equivalent, least))

    def above_floor(self, floor: float | None) -> Margins:
        """With a case's floor, the smallest effect that was shown to be seen in it.

        What counts as no change stays the same: a case in which little can be seen is inconclusive.
        """
        return self if floor is None else replace(self, least=max(self.least, floor))


TWO_RUNS = Margins(least=0.005)
DUET = Margins(least=0.0025)


@dataclass(frozen=True)
class Difference:
    """A mean log ratio of times, head over base, with its standard error over launches.

    Student's t is what scipy.stats.t has, without half a second to import that.
    """

    log_mean: float
    standard_error: float
    degrees: float
    base_launches: int
    head_launches: int

    @property
    def ratio(self) -> Estimate:
        """Head time / base time with its 95 % interval."""
        low, high = self.interval(CONFIDENCE)
        launches = min(self.base_launches, self.head_launches)
        return Estimate(_exp(self.log_mean), _exp(low), _exp(high), launches)

    @property
    def change(self) -> float:
        """Head time / base time - 1."""
        return _exp(self.log_mean) - 1

    def interval(self, confidence: float) -> tuple[float, float]:
        """Two-sided interval of the mean log ratio."""
        half = self.quantile(0.5 + confidence / 2) * self.standard_error
        return self.log_mean - half, self.log_mean + half

    def p_slower(self, least: float = 0.0) -> float:
        """One-sided: the chance of a mean this high when the head is slower by `least` at most."""
        distance = (self.log_mean - math.log1p(least)) / self.standard_error
        return float(scipy.special.stdtr(self.degrees, -distance))

    def p_faster(self, least: float = 0.0) -> float:
        """One-sided: the chance of a mean this low when the head is faster by `least` at most."""
        distance = (self.log_mean + math.log1p(least)) / self.standard_error
        return float(scipy.special.stdtr(self.degrees, distance))

    def within(self, margin: float, alpha: float = EQUIVALENCE_ALPHA) -> bool:
        """Two one-sided tests: whether the head is shown to be within the margin of the base."""
        low, high = self.interval(1 - 2 * alpha)
        return -math.log1p(margin) < low and high < math.log1p(margin)

    def smallest_effect(self, alpha: float, least: float, power: float = POWER) -> float:
        """The change for which a test at `alpha` shows more than `least` with that power."""
        needed = (self.quantile(1 - alpha) + self.quantile(power)) * self.standard_error
        return _exp(math.log1p(least) + needed) - 1

    def launches_to_see(self, effect: float, alpha: float, least: float, most: int) -> int | None:
        """The fewest launches of each side, more than now and `most` at most, that would show this
        effect if they varied as these did; None where so many would not."""
        now = max(self.base_launches, self.head_launches)

        def shows(launches: int) -> bool:
            error = self.standard_error * math.sqrt(now / launches)
            freedom = self.degrees * (launches - 1) / (now - 1)
            more = replace(self, standard_error=error, degrees=freedom)
            return more.smallest_effect(alpha, least) <= effect

        counts = range(now + 1, most + 1)
        found = bisect_left(counts, True, key=shows)
        return counts[found] if found < len(counts) else None

    def quantile(self, probability: float) -> float:
        """Of Student's t with this difference's degrees of freedom."""
        return float(scipy.special.stdtrit(self.degrees, probability))


@dataclass(frozen=True)
class Verdict:
    """What was decided, on which figures, and every step from them to it.

    `unconfirmed`: a gate's screen flagged a change, and the launches ended before its confirmation
    did. Then `smallest_effect` is what the last look would have confirmed, None without a look.
    """

    verdict: str
    difference: Difference | None = None
    smallest_effect: float | None = None
    reason: str = ""
    path: tuple[str, ...] = field(default=(), compare=False)
    unconfirmed: bool = False

    def row(self, subject: str, limit: float, **more: Any) -> Row:
        """As an answer; `more` are its other fields."""
        made = Row(
            question="head/base",
            subject=subject,
            verdict=self.verdict,
            kind=KINDS[self.verdict],
            estimate=self.difference.ratio if self.difference else None,
            limit=limit,
            smallest_effect=self.smallest_effect,
            reason=more_than_effect(self),
        )
        return replace(made, **more)

    def data(self, margins: Margins) -> dict[str, Any]:
        """What the JSON of a row has of it."""
        both = {"least": margins.least, "equivalent": margins.equivalent}
        return {"reason": self.reason, "margins": both, "path": list(self.path)}


def independent(base: Sequence[float], head: Sequence[float]) -> Difference | None:
    """Welch's t over the log times of launches that are not paired; None below two on a side."""
    if min(len(base), len(head)) < 2:
        return None
    errors = [float(np.var(side, ddof=1)) / len(side) for side in (base, head)]
    total = sum(errors)
    freedom = [error**2 / (len(side) - 1) for error, side in zip(errors, (base, head), strict=True)]
    known = math.sqrt(total) > SMALLEST_ERROR
    degrees = total**2 / sum(freedom) if known else len(base) + len(head) - 2.0
    mean = float(np.mean(head)) - float(np.mean(base))
    error = max(math.sqrt(total), SMALLEST_ERROR)
    return Difference(mean, error, degrees, len(base), len(head))


def paired(values: Sequence[float]) -> Difference | None:
    """Student's t over the log ratios of launches that held both sides; None below two."""
    count = len(values)
    if count < 2:
        return None
    error = max(float(np.std(values, ddof=1)) / math.sqrt(count), SMALLEST_ERROR)
    return Difference(float(np.mean(values)), error, count - 1.0, count, count)


def holm(p_values: Mapping[Key, float]) -> dict[Key, float]:
    """Adjusted p values: rejecting below alpha keeps the chance of any false one below alpha.

    Holm, Scandinavian Journal of Statistics 6 (1979), 65-70; needs no independence.
    """
    ordered = sorted(p_values, key=lambda key: p_values[key])
    adjusted: dict[Key, float] = {}
    worst = 0.0
    for rank, key in enumerate(ordered):
        worst = max(worst, min(1.0, (len(ordered) - rank) * p_values[key]))
        adjusted[key] = worst
    return adjusted


def decide_family(
    differences: Mapping[Key, Difference], margins: Mapping[Key, Margins]
) -> dict[Key, Verdict]:
    """Verdicts on all differences of one comparison of two runs, family-wise."""
    slower = holm({key: one.p_slower(margins[key].least) for key, one in differences.items()})
    faster = holm({key: one.p_faster(margins[key].least) for key, one in differences.items()})
    alpha = FAMILY_ALPHA / max(1, len(differences))
    return {
        key: _decide(one, margins[key], alpha, (slower[key], faster[key]), len(differences))
        for key, one in differences.items()
    }


def _decide(
    one: Difference,
    margins: Margins,
    alpha: float,
    adjusted: tuple[float, float],
    family: int,
) -> Verdict:
    slower, faster = adjusted
    path: tuple[str, ...] = (
        describe(one, steps.INDEPENDENT),
        step(
            steps.FAMILY,
            f"{family} comparisons, Holm-adjusted p of a change above {percent(margins.least)}:"
            f" slower {slower:.3g}, faster {faster:.3g}; a change needs p < {FAMILY_ALPHA:g}",
        ),
    )
    if slower < FAMILY_ALPHA:
        verdict = Verdict(REGRESSED, one)
    elif faster < FAMILY_ALPHA:
        verdict = Verdict(IMPROVED, one)
    else:
        verdict = no_change(one, margins, one.smallest_effect(alpha, margins.least))
        path = (*path, _equivalence_line(one, margins))
    return replace(verdict, path=(*path, step(steps.VERDICT, verdict.verdict)))


def further(
    differences: Sequence[Difference],
    effects: Sequence[float],
    alpha: float,
    least: float,
    most: int,
) -> tuple[float, int, int] | None:
    """The first of these effects that further launches would tell in most of the differences, how
    many launches, and in how many of them; None where `most` would tell none."""
    for effect in effects:
        needed = [one.launches_to_see(effect, alpha, least, most) for one in differences]
        enough = sorted(count for count in needed if count is not None)
        if needed and len(enough) >= MOST_OF_THEM * len(needed):
            launches = enough[math.ceil(MOST_OF_THEM * len(needed)) - 1]
            return effect, launches, sum(count <= launches for count in enough)
    return None


def no_change(
    one: Difference, margins: Margins, seen: float, alpha: float = EQUIVALENCE_ALPHA
) -> Verdict:
    """Equivalent, or inconclusive; `seen` is the smallest effect that would have been seen."""
    if one.within(margins.equivalent, alpha):
        return Verdict(EQUIVALENT, one, seen)
    return Verdict(INCONCLUSIVE, one, seen, _only_from(seen))


def more_than_effect(verdict: Verdict) -> str:
    """Its reason, where that says more than the smallest effect."""
    effect = verdict.smallest_effect
    return "" if effect is not None and verdict.reason == _only_from(effect) else verdict.reason


# --- The gate: a screen, then confirmation on fresh launches ---

SLOWER = "slower"
FASTER = "faster"
CONFIRMED = "confirmed"
CLEARED = "cleared"
GO_ON = "go on"
ARM_TIME_S = 0.2  # per build, comparison and launch, of a gate and of the trials that certify it


@dataclass(frozen=True)
class GatePlan:
    """How a gate over `cases` comparisons spends its error budget.

    The expected number of false regressions in a suite is at most cases x screen_alpha x
    confirm_alpha, which is `suite_alpha`, whatever the dependence between cases, because the second
    stage uses fresh launches. Both stages look several times, and share their alpha between looks.
    """

    cases: int
    screens: tuple[int, ...] = (4, 8, 16)
    looks: tuple[int, ...] = (8, 16, 32, 64, 128)
    screen_alpha: float = 0.05
    suite_alpha: float = 0.005

    @property
    def screen_launches(self) -> int:
        """What the first look at every case takes."""
        return self.screens[0]

    @property
    def screen_look_alpha(self) -> float:
        """Of each look of the first stage (Bonferroni)."""
        return self.screen_alpha / len(self.screens)

    @property
    def equivalence_alpha(self) -> float:
        """Of equivalence at each look of the first stage (Bonferroni)."""
        return EQUIVALENCE_ALPHA / len(self.screens)

    @property
    def confirm_alpha(self) -> float:
        """What the second stage may spend on one case."""
        return min(self.screen_alpha, self.suite_alpha / (self.screen_alpha * max(1, self.cases)))

    @property
    def look_alpha(self) -> float:
        """Of each look of the second stage (Bonferroni)."""
        return self.confirm_alpha / len(self.looks)


@dataclass(frozen=True)
class Screened:
    """What the first stage says of a case: SLOWER or FASTER to be confirmed, an empty string for no
    change, or GO_ON with `wanted` launches in all; `look` holds the launches that it looked at."""

    state: str
    look: Difference
    wanted: int = 0


def screen(first: Sequence[float], margins: Margins, plan: GatePlan) -> Screened | None:
    """Looks at the first stage's launch values until they show a change, or would have shown one of
    AIM times the least change. None below two launches.

    How long it goes on depends on the spread of the launches and not on their mean.
    """
    look: Difference | None = None
    for launches in plan.screens:
        if look is not None and len(first) < launches:
            return Screened(GO_ON, look, launches)
        look = paired(first[:launches])
        if look is None:
            return None
        state = _screen_look(look, margins, plan)
        if state or _seen_by_gate(look, margins, plan) <= AIM * margins.least:
            return Screened(state, look)
    return Screened("", look) if look is not None else None


def _screen_look(one: Difference, margins: Margins, plan: GatePlan) -> str:
    least = math.log1p(margins.least)
    if one.log_mean > least and one.p_slower() < plan.screen_look_alpha:
        return SLOWER
    if one.log_mean < -least and one.p_faster() < plan.screen_look_alpha:
        return FASTER
    return ""


def confirm(one: Difference, direction: str, margins: Margins, plan: GatePlan) -> str:
    """CONFIRMED, CLEARED (futile to go on, or the last look) or GO_ON after a look of stage two.

    The test is of a change above `least`, not of any change: a steady bias of the measurement that
    is smaller must not become certain by taking more launches.
    """
    least = math.log1p(margins.least)
    p_value = (one.p_slower if direction == SLOWER else one.p_faster)(margins.least)
    if p_value < plan.look_alpha:
        return CONFIRMED
    low, high = one.interval(CONFIDENCE)
    furthest = high if direction == SLOWER else -low
    last = one.base_launches >= plan.looks[-1]
    return CLEARED if furthest < least or last else GO_ON


def decide_gate(
    first: Sequence[float], second: Sequence[float], margins: Margins, plan: GatePlan
) -> Verdict:
    """The verdict on one case from the launch values of both stages.

    Both hold as many launches as were taken, from the first on; looks are those of the plan. With a
    look of the second stage outstanding (a budget that ended) the verdict is inconclusive; with one
    of the first, it rests on the launches that are there.
    """
    screened = screen(first, margins, plan)
    if screened is None:
        return Verdict(INCONCLUSIVE, reason="fewer than two launches: nothing is known of others")
    path = [describe(screened.look, steps.PAIRED), _screen_line(screened, margins, plan)]
    if screened.state in (SLOWER, FASTER):
        verdict = _decide_confirmation(second, screened.state, margins, plan, path)
    else:
        look, alpha = screened.look, plan.equivalence_alpha
        verdict = no_change(look, margins, _seen_by_gate(look, margins, plan), alpha)
        path.append(_equivalence_line(look, margins, alpha))
    path.append(step(steps.VERDICT, verdict.verdict))
    return replace(verdict, path=tuple(path))


def decide_in_order(values: Sequence[float], margins: Margins, plan: GatePlan) -> Verdict:
    """The verdict of a gate that takes these launches one after another, as many as it needs."""
    screened = screen(values[: plan.screens[-1]], margins, plan)
    used = screened.look.base_launches if screened else len(values)
    return decide_gate(values[:used], values[used:], margins, plan)


def _screen_line(screened: Screened, margins: Margins, plan: GatePlan) -> str:
    said = {
        "": "no change to confirm",
        GO_ON: f"no change so far; {screened.wanted} launches were wanted to see more",
    }
    found = said.get(screened.state, f"{screened.state}, to be confirmed")
    asked = f"p < {plan.screen_look_alpha:.2g} and more than {percent(margins.least)}"
    return step(steps.SCREEN, f"{asked}: {found}")


def _decide_confirmation(
    second: Sequence[float], direction: str, margins: Margins, plan: GatePlan, path: list[str]
) -> Verdict:
    look: Difference | None = None
    for launches in plan.looks:
        if len(second) < launches:
            break
        look = paired(second[:launches])
        if look is None:
            break
        result = confirm(look, direction, margins, plan)
        path += [
            describe(look, steps.PAIRED),
            step(
                steps.CONFIRMATION,
                f"fresh launches, look at {launches}: p < {plan.look_alpha:.2g} of a change above"
                f" {percent(margins.least)}: {result}",
            ),
        ]
        if result == CONFIRMED:
            return Verdict(REGRESSED if direction == SLOWER else IMPROVED, look)
        if result == CLEARED:
            path.append(_equivalence_line(look, margins))
            seen = look.smallest_effect(plan.look_alpha, margins.least)
            return no_change(look, margins, seen)
    reason = f"looked {direction}, but too few launches were left to confirm it"
    confirmed_from = look.smallest_effect(plan.look_alpha, margins.least) if look else None
    return Verdict(INCONCLUSIVE, look, confirmed_from, reason, unconfirmed=True)


def _seen_by_gate(one: Difference, margins: Margins, plan: GatePlan) -> float:
    """The smallest effect that passes the screen and, at the last look, the confirmation.

    Each stage is given half of the misses that the power allows.
    """
    each = 1 - (1 - POWER) / 2
    screened = max(one.smallest_effect(plan.screen_look_alpha, 0.0, each), margins.least)
    last = plan.looks[-1]
    error = one.standard_error * math.sqrt(one.base_launches / last)
    look = replace(
        one, standard_error=error, degrees=last - 1.0, base_launches=last, head_launches=last
    )
    return max(screened, look.smallest_effect(plan.look_alpha, margins.least, each))


def describe(one: Difference, section: str) -> str:
    """The figures of a difference, for a path."""
    low, high = (_exp(end) - 1 for end in one.interval(CONFIDENCE))
    launches = f"{one.base_launches}"
    if one.head_launches != one.base_launches:
        launches += f" against {one.head_launches}"
    return step(
        section,
        f"{launches}; change {percent(one.change)}, 95 % interval {percent(low)} to"
        f" {percent(high)}, standard error {percent(one.standard_error)}, {one.degrees:.1f} degrees"
        " of freedom",
    )


def at_least(effect: float) -> str:
    """The changes that would have been seen, by the smallest of them."""
    return f"{seen_from(effect)} or more" if effect <= LARGEST_SHOWN else seen_from(effect)


def seen_from(effect: float) -> str:
    """The smallest change that would have been seen; from tenfold on, its size says no more."""
    return percent(effect) if effect <= LARGEST_SHOWN else "more than 1000 %"


def _only_from(effect: float) -> str:
    return f"only changes of {at_least(effect)} would have been seen"


def percent(value: float) -> str:
    """0.00123 becomes 0.123 %."""
    return f"{100 * value:.3g} %"


def _exp(log: float) -> float:
    return math.exp(max(-LARGEST_LOG, min(log, LARGEST_LOG)))


def _equivalence_line(one: Difference, margins: Margins, alpha: float = EQUIVALENCE_ALPHA) -> str:
    confidence = 1 - 2 * alpha
    low, high = (_exp(end) - 1 for end in one.interval(confidence))
    inside = "inside" if one.within(margins.equivalent, alpha) else "not inside"
    return step(
        steps.EQUIVALENCE,
        f"{percent(confidence)} interval {percent(low)} to {percent(high)} is {inside}"
        f" +-{percent(margins.equivalent)}",
    )
