"""Whether a change leaves a step's result what it is, in the words of the table."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from gpulift.advise.evidence import BASELINE, Check, Keeps, Process

SAME_BITS, SAME_STEP, SAME_COURSE = "same bits", "same step", "same course"
OTHER_WORK, NOT_COMPARABLE, NOT_CHECKED = "other work", "not comparable", "not checked"
DIFFERS = "differs"  # and by how much
SAME = (SAME_BITS, SAME_STEP, SAME_COURSE)
BAND = 0.01  # of losses of two courses, relative to their mean
OF_ROUNDING = 3  # times what rounding turns a course by, where that is more
OF_ITSELF = 3  # times what courses as they are lie apart, as those whose first weights have no seed
DRAWS = "random numbers"  # in what a probe says of a step that draws others


def of_arm(replays: Sequence[Process], arm: str) -> str:
    """Of one step from one state: over all launches, the worst of them."""
    checked = [(one.checks[arm], one.checks.get(BASELINE)) for one in replays if arm in one.checks]
    if not checked:
        return NOT_CHECKED
    if all(own.bits and null is not None and null.bits for own, null in checked):
        return SAME_BITS
    if any(own.gradient is None and DRAWS in own.why for own, _ in checked):
        return NOT_COMPARABLE
    distances = [distance(own) for own, _ in checked]
    known = [one for one in distances if one is not None]
    if len(known) < len(distances):
        return NOT_CHECKED
    if all(far <= own.band for far, (own, _) in zip(known, checked, strict=True)):
        return SAME_STEP
    if any(null is not None and _beyond(null, own.band) for own, null in checked):
        return NOT_COMPARABLE
    return f"{DIFFERS} by {max(known, key=_as_order):.1g}"


def distance(check: Check) -> float | None:
    """Relative: of gradients, or of losses where there are none; None where nothing is known."""
    if check.bits:
        return 0.0
    if check.gradient is not None:
        return check.gradient
    return _apart(check.losses[:1], check.losses[1:])


def _beyond(null: Check, band: float) -> bool:
    far = distance(null)
    return far is not None and not far <= band


def rounding(plain: Sequence[Process]) -> float:
    """How far the course of the step as it is turns with the last bit of its weights; 0 where that
    was not measured."""
    courses = [one.losses for one in plain if not one.rounded and one.losses]
    apart = [_apart(courses[0], one.losses) for one in plain if one.rounded and courses]
    return max((far for far in apart if far is not None), default=0.0, key=_as_order)


def of_setting(
    pairs: Sequence[tuple[Process, Sequence[Process]]],
    keeps: Keeps,
    rounding: float = 0.0,
    draws_anew: bool = False,
) -> str:
    """Of the losses of live steps, against those of the same round as it is. Where other processes
    draw what augments the batches at random, or first weights, losses may differ for that alone."""
    if keeps == "work":
        return OTHER_WORK
    pairs = [(own, [base for base in bases if not base.rounded]) for own, bases in pairs]
    courses = [(own.losses, base.losses) for own, bases in pairs for base in bases]
    apart = [_apart(base, own) for own, base in courses]
    known = [one for one in apart if one is not None]
    if not known or len(known) < len(apart):
        return NOT_CHECKED
    if all(_equal(own, base) for own, base in courses):
        return SAME_BITS
    if all(far <= max(BAND, OF_ROUNDING * rounding) for far in known):
        return SAME_COURSE
    plain = [base.losses for _, bases in pairs for base in bases]
    null = [_apart(first, second) for first, second in combinations(plain, 2)]
    itself = max((far for far in null if far is not None), default=0.0, key=_as_order)
    furthest = max(known, key=_as_order)
    if draws_anew or not itself <= BAND or furthest <= OF_ITSELF * itself:
        return NOT_COMPARABLE
    return f"{DIFFERS} by {100 * furthest:.2g} %"


def worst(several: Sequence[str]) -> str:
    """Of the results of changes that are made at once."""
    return max(several, key=lambda result: SAME.index(result) if result in SAME else len(SAME))


def _equal(own: Sequence[float], base: Sequence[float]) -> bool:
    return all(one == other for one, other in zip(own, base, strict=False))  # as far as both go


def _apart(base: Sequence[float], own: Sequence[float]) -> float | None:
    """Mean distance of losses over their mean size; None without a loss, NaN of a NaN."""
    both = list(zip(base, own, strict=False))
    if not both:
        return None
    if all(one == other for one, other in both):
        return 0.0
    size = sum(abs(one) for one, _ in both)
    return sum(abs(one - other) for one, other in both) / size if size else float("inf")


def _as_order(value: float) -> float:
    """NaN is the furthest."""
    return value if value == value else float("inf")
