"""What results say, in sentences: computed from intervals, no verdict is set by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import takewhile

from gpulift.analysis.arms import item_rate
from gpulift.analysis.gains import FASTER, leaning, memory_ratio
from gpulift.analysis.summary import Worth
from gpulift.ground import text
from gpulift.report import plots

MOST_ARMS = 12
MOST_CASES = 6  # that a sentence names one by one; of more it names the ends
BATCH = "batch"  # an axis: samples of a step
KNEE = 0.95  # of the best rate, which the smallest batch at the knee reaches
LEAST_BATCHES = 3
MOST_LETTERS = 600  # of a sentence


def of_rows(rows: Sequence[Worth]) -> tuple[str, ...]:
    """A sentence per arm of a technique on one machine, the arm with the largest gain first and
    controls last; then the knees, where batches were swept."""
    arms: dict[str, list[Worth]] = {}
    for row in sorted(rows, key=lambda one: (one.of_control, -one.speedup.value)):
        arms.setdefault(row.arm, []).append(row)
    axis = plots.sweep_axis(rows)
    sentences = [_of_arm(arm, members, axis) for arm, members in arms.items()]
    rest = len(sentences) - MOST_ARMS
    more = [f"{rest} more arms: see the table"] if rest > 0 else []
    return (*sentences[:MOST_ARMS], *more, *_knees(arms))


def _knees(arms: Mapping[str, Sequence[Worth]]) -> list[str]:
    """`knee of batch, the smallest within 5 % of the best rate: model gpt2: 8, ...`, by arm.

    Rates of batches are of launches of their own, with what launches differ by between them.
    """
    found = []
    for arm, rows in arms.items():
        sweeps: dict[str, list[tuple[float, float, str]]] = {}
        for batch, row in _along(rows, BATCH):
            if row.items_per_s:
                rate = (batch, row.items_per_s.value, row.item)
                sweeps.setdefault(plots.other_axes(row, BATCH), []).append(rate)
        said = [
            _knee(name, one) for name, one in sorted(sweeps.items()) if len(one) >= LEAST_BATCHES
        ]
        if said:
            within = f"within {100 * (1 - KNEE):g} % of the best rate"
            found.append(f"knee of {arm}, the smallest {within}: {'; '.join(said)}")
    return found


def _knee(name: str, rates: Sequence[tuple[float, float, str]]) -> str:
    """`model gpt2: 8, 214 rows/s, of 217 rows/s at 31`, from batches, items per second, items."""
    best, best_rate, item = max(rates, key=lambda one: one[1])
    knee, rate, _ = min(one for one in rates if one[1] >= KNEE * best_rate)
    said = f"{name}: {knee:g}" if name else f"{knee:g}"
    if knee == max(rates)[0]:
        said += ", the largest measured"  # a larger one may be better
    of = "" if knee == best else f", of {item_rate(best_rate, item)} at {best:g}"
    return f"{said}, {item_rate(rate, item)}{of}"


def _of_arm(arm: str, rows: Sequence[Worth], axis: str | None) -> str:
    """`pinned: faster in 13 of 14 cases, 1.31× (h2d, 4 KiB) to 5.46× (h2d, 16 MiB); ...`."""
    best, worst = rows[0], rows[-1]
    if len(rows) == 1:
        return f"{arm}: {text.verdict(best.speedup)[0]} {leaning(best.speedup)}, {_gain(best)}"
    words = Counter(leaning(row.speedup) for row in rows)
    counted = [f"{word} in {count} of {len(rows)} cases" for word, count in words.most_common()]
    if axis is None and len(rows) <= MOST_CASES:
        return f"{arm}: {', '.join(counted)}: {', '.join(_gain(row) for row in rows)}"
    ends = f"{text.ratio(worst.speedup.value)} ({_case(worst)}) to"
    ends += f" {text.ratio(best.speedup.value)} ({_case(best)})"
    where = _where_faster(rows, axis) if axis and 0 < words[FASTER] < len(rows) else ""
    return f"{arm}: {', '.join(counted)}: {ends}{where}"


def _gain(row: Worth) -> str:
    """`4.32× (resnet50, equal; 0.53× the memory)`."""
    about = "; ".join(filter(None, (_case(row), memory_ratio(row))))
    return f"{text.ratio(row.speedup.value)} ({about})"


def _where_faster(rows: Sequence[Worth], axis: str) -> str:
    """From which value of the axis on every larger one gains, and how much; for each other axis."""
    groups: dict[str, list[Worth]] = {}
    for row in rows:
        groups.setdefault(plots.other_axes(row, axis), []).append(row)
    found = []
    for name, members in groups.items():
        gaining = _gaining(members, axis)
        if gaining:
            label = f"{name}: " if name else ""
            gains = sorted(row.speedup.value for _, row in gaining)
            ends = list(dict.fromkeys(text.ratio(gain) for gain in (gains[0], gains[-1])))
            start = _value(axis, gaining[-1][0])
            found.append(f"{label}faster from {start} up, {' to '.join(ends)}")
    return f"; {'; '.join(sorted(found))}" if found else ""


def _gaining(rows: Sequence[Worth], axis: str) -> list[tuple[float, Worth]]:
    """The rows from the largest value of the axis down to the first that does not gain."""
    found = sorted(_along(rows, axis), key=lambda pair: -pair[0])
    return list(takewhile(lambda pair: leaning(pair[1].speedup) == FASTER, found))


def _along(rows: Sequence[Worth], axis: str) -> list[tuple[float, Worth]]:
    """The rows that have a number on the axis, with it."""
    found = ((row.case.first.case.get(axis), row) for row in rows)
    return [(float(value), row) for value, row in found if isinstance(value, (int, float))]


def _value(axis: str, value: float) -> str:
    return text.quantity(axis, value) or f"{axis} {value:g}"


def _case(row: Worth) -> str:
    return text.case_label(row.case.case_id, short=True)
