"""What tables of a comparison say of a row."""

from __future__ import annotations

from gpulift import decision
from gpulift.compare.judge import Row, values

NONE = "–"


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


def smallest_effect(row: Row) -> str:
    """Of a row without a change."""
    effect = row.verdict.smallest_effect
    return NONE if effect is None else decision.seen_from(effect)


def reason(row: Row) -> str:
    """What else there is to say of it."""
    return "; ".join(filter(None, (row.measure, decision.more_than_effect(row.verdict))))


def _signed(change: float) -> str:
    return f"{100 * change:+.2f} %"
