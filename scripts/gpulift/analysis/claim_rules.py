"""Where a gain is against the range that a claim allows, and what all cases together decide.

A case is inside when its whole interval is in the range, outside when none of it is, else
undecided. All inside: confirmed. Some inside: confirmed under conditions. All outside: corrected to
the measured range, or not confirmed where no case shows an effect of the claimed sign. Anything
else is not confirmed. "Up to" is confirmed by one case that reaches the figure, within what counts
as the same, which says so where the largest gain exceeds it, and corrected to the largest gain
otherwise. "Both ways" takes a case on either side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpulift.analysis.grade import Grade
from gpulift.analysis.ledger import Rule
from gpulift.analysis.over_runs import ModelFigure
from gpulift.ground.estimate import Estimate
from gpulift.records.model import Record

CONFIRMED = "confirmed"
UNDER_CONDITIONS = "confirmed under conditions"
CORRECTED = "corrected"
NOT_CONFIRMED = "not confirmed"

INSIDE = "inside"
OUTSIDE = "outside"
UNDECIDED = "undecided"

SAME = 1.05  # what counts as the same figure


@dataclass(frozen=True)
class CaseResult:
    """The gain in one case, its interval, where that is against the claimed range, and on what it
    rests."""

    case_id: str
    figure: ModelFigure
    low: float
    high: float
    place: str
    grade: Grade

    @property
    def gain(self) -> Estimate:
        """Of the arm over its baseline."""
        return self.figure.value

    @property
    def records(self) -> tuple[Record, ...]:
        """Those behind the gain."""
        return self.figure.records

    @property
    def cards(self) -> tuple[str, ...]:
        """Short hashes of the cards that took part; none without a GPU."""
        return self.figure.cards


def decide(cases: Sequence[CaseResult], rule: Rule) -> tuple[str, str]:
    """The verdict that these cases decide, at least one, and what decided it."""
    if rule.kind == "up_to":
        return _decide_largest(cases, rule)
    return _decide_both(cases, rule) if rule.kind == "both_ways" else _decide_range(cases, rule)


def place(low: float, high: float, rule: Rule) -> str:
    """Where this interval of a gain is."""
    if rule.kind in ("faster_or_slower_by", "both_ways"):
        return _place_apart(low, high, rule.low or 1.0)
    least = 0.0 if rule.low is None else rule.low
    least /= SAME if rule.kind == "up_to" else 1
    most = float("inf") if rule.high is None else rule.high
    if least <= low and high <= most:
        return INSIDE
    return OUTSIDE if high < least or low > most else UNDECIDED


def _place_apart(low: float, high: float, least: float) -> str:
    if low >= least or high <= 1 / least:
        return INSIDE
    return OUTSIDE if 1 / least < low and high < least else UNDECIDED


def _right_sign(case: CaseResult, rule: Rule) -> bool:
    """Whether the effect is shown to go the way that the claim says; any way if it names none."""
    if rule.kind == "faster_or_slower_by":
        return True
    if rule.low is not None and rule.low > 1:
        return case.low > 1
    if rule.high is not None and rule.high < 1:
        return case.high < 1
    return True


def _decide_range(cases: Sequence[CaseResult], rule: Rule) -> tuple[str, str]:
    inside = [case for case in cases if case.place == INSIDE]
    outside = [case for case in cases if case.place == OUTSIDE]
    if len(inside) == len(cases):
        return CONFIRMED, f"{rule.text} in every case"
    if inside:
        return UNDER_CONDITIONS, f"{rule.text} in {len(inside)} of {len(cases)} cases"
    if len(outside) < len(cases):
        undecided = f"undecided in {len(cases) - len(outside)} of {len(cases)} cases"
        return NOT_CONFIRMED, undecided + (", not so in the others" if outside else "")
    if not any(_right_sign(case, rule) for case in cases):
        return NOT_CONFIRMED, "no case shows a gain" if rule.low else "no case shows a loss"
    return CORRECTED, f"not {rule.text} in any case"


def _decide_both(cases: Sequence[CaseResult], rule: Rule) -> tuple[str, str]:
    faster = sum(case.place == INSIDE and case.low > 1 for case in cases)
    slower = sum(case.place == INSIDE and case.high < 1 for case in cases)
    reason = f"faster in {faster} and slower in {slower} of {len(cases)} cases"
    return CONFIRMED if faster and slower else NOT_CONFIRMED, reason


def _decide_largest(cases: Sequence[CaseResult], rule: Rule) -> tuple[str, str]:
    largest = max(cases, key=lambda case: case.gain.value)
    if any(case.place == INSIDE for case in cases):
        beyond = largest.low > (rule.low or 0.0) * SAME
        more = f", and exceeded: {largest.gain.value:.3g}×" if beyond else ""
        return CONFIRMED, f"{rule.text}: reached{more}"
    if any(case.place == UNDECIDED for case in cases):
        return NOT_CONFIRMED, "the largest gain may or may not reach it: more launches are needed"
    if not _right_sign(largest, rule):
        return NOT_CONFIRMED, "no case shows a gain"
    return CORRECTED, f"up to {largest.gain.value:.3g}×, not {rule.text}"
