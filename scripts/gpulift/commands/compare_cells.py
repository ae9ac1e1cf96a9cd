"""What tables and lines of a comparison say."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from gpulift.verdicts import decision, explain
from gpulift.verdicts.decision import Difference
from gpulift.verdicts.two_sets import UNITS, Comparison, Row, values

NONE = "–"
WORDS = {  # for the first line; the rows have the verdicts themselves
    decision.ERROR: "failed in head",
    decision.REGRESSED: "slower",
    decision.IMPROVED: "faster",
    decision.EQUIVALENT: "same",
    decision.INCONCLUSIVE: "could not be told",
    decision.SKIPPED: "skipped",
}
ALWAYS = (decision.REGRESSED, decision.IMPROVED)  # are counted even where there are none
CHANGED = (decision.ERROR, decision.REGRESSED, decision.IMPROVED)
TOLD = (0.01, 0.02, 0.05, 0.1, 0.2)  # changes that further launches could tell
MOST_LAUNCHES = 32  # that are proposed
NAMED = 5  # reasons to skip
ENOUGH = 0.75  # of the rows, for which a smaller change is promised


def counted(found: Comparison) -> str:
    """`2 slower, 1 faster, 20 same, 37 could not be told`."""
    counts = found.counts
    return ", ".join(
        f"{counts[verdict]} {word}"
        for verdict, word in WORDS.items()
        if counts[verdict] or verdict in ALWAYS
    )


def untold(found: Comparison) -> Iterator[str]:
    """Of the rows that have no answer how many there are for each reason, and what would give
    one."""
    rows = [row for row in found.rows if row.verdict.verdict == decision.INCONCLUSIVE]
    varied = [one for row in rows if not _other_reason(row) for one in [row.verdict.difference]]
    unit = UNITS[found.unit]
    if differences := [one for one in varied if one is not None]:
        looks = Counter(map(_looks, differences))
        some = [f"{looks[word]} look {word}" for word in ("slower", "faster") if looks[word]]
        yield (
            f"{len(differences)} could not be told: {unit} vary too much"
            + (f" ({', '.join(some)})" if some else "")
        )
        yield _further(differences, found)
    for reason, count in Counter(filter(None, map(_other_reason, rows))).items():
        yield f"{count} could not be told: {reason}"
    skipped = [row for row in found.rows if row.verdict.verdict == decision.SKIPPED]
    reasons = Counter(row.verdict.reason for row in skipped).most_common()
    for reason, count in reasons[:NAMED]:
        yield f"{count} skipped: {reason}"
    if more := sum(count for _, count in reasons[NAMED:]):
        yield f"{more} skipped for {len(reasons) - NAMED} other reasons"


def sides(row: Row, unit: str) -> tuple[str, str]:
    """What is compared, of base and of head."""
    return explain.sides(row.base, row.change, unit) if row.change is not None else (NONE, NONE)


def change(row: Row) -> str:
    """Head against base, +0.50 % is slower."""
    return NONE if row.change is None else _signed(row.change)


def interval(row: Row) -> str:
    """Of the change, with 95 % confidence."""
    ratio = row.verdict.difference.ratio if row.verdict.difference else None
    if ratio is None or ratio.low is None or ratio.high is None:
        return NONE
    return f"{_signed(ratio.low - 1)} to {_signed(ratio.high - 1)}"


def units(row: Row, unit: str) -> str:
    """How many values each side has."""
    if not row.base or not row.head:
        return NONE
    return f"{len(values(row.base, unit))} / {len(values(row.head, unit))}"


def reason(row: Row, family: int) -> str:
    """What its figures do not say: what else than the time is compared, why nothing is told, what
    would have been seen."""
    verdict, look = row.verdict, row.verdict.difference
    parts = [row.measure, verdict.reason]
    if verdict.verdict == decision.INCONCLUSIVE and look and not _other_reason(row):
        among = f"among {family} comparisons " if family > 1 else ""
        if word := _looks(look):
            parts[1] = f"looks {word}, but {among}{verdict.reason}"
    elif verdict.smallest_effect is not None:
        parts.append(
            f"changes of {decision.at_least(verdict.smallest_effect)} would have been seen"
        )
    return "; ".join(filter(None, parts))


def _other_reason(row: Row) -> str:
    """Than that its values vary too much."""
    return decision.more_than_effect(row.verdict)


def _looks(one: Difference) -> str:
    """Where its interval alone is on one side of no change, that side."""
    low, high = one.ratio.low or 0.0, one.ratio.high or math.inf
    return "slower" if low > 1 else "faster" if high < 1 else ""


def _further(differences: Sequence[Difference], found: Comparison) -> str:
    """How many launches would tell how small a change in most of these, as far as their spread
    tells."""
    alpha = decision.FAMILY_ALPHA / max(1, found.family)
    unit = UNITS[found.unit]
    for effect in TOLD:
        needed = [
            one.launches_to_see(effect, alpha, decision.TWO_RUNS.least, MOST_LAUNCHES)
            for one in differences
        ]
        enough = sorted(count for count in needed if count is not None)
        if len(enough) >= ENOUGH * len(needed):
            launches = enough[math.ceil(ENOUGH * len(needed)) - 1]
            seen = sum(count <= launches for count in enough)
            how = f": measure both with --launches {launches}" if found.unit == "launch" else ""
            part = f" in {seen} of them" if seen < len(needed) else ""
            told = f"{launches} {unit} a side would tell {decision.percent(effect)}"
            return f"{told}{part}{how}"
    return f"{MOST_LAUNCHES} {unit} a side would not tell {decision.percent(TOLD[-1])} in most"


def _signed(change: float) -> str:
    return f"{100 * change:+.2f} %"
