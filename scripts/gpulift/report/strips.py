"""The raw windows of a case as a compact inline SVG, written by hand: there are hundreds of them.

A row per arm: its name and median, below them a lane per launch with a tick per window. All rows
share one axis, a window's step time over the arm's median, so that spreads can be compared. The
ticks of an arm are one path of relative moves, about six bytes each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from markupsafe import Markup, escape

from gpulift.ground import text
from gpulift.report.plots import short
from gpulift.verdicts import stats
from gpulift.verdicts.cases import Case

MOST_WINDOWS = 240  # ticks of a row; beyond that each launch keeps evenly spaced ones
WIDTH = 360
TEXT_PX = 11
LABEL_HEIGHT = 14
AXIS_HEIGHT = 15
LANES_HEIGHT = 15  # of all launches of an arm, where they have room in it
LEAST_LANE = 2.0
NAME_LETTERS = 34
LEAST_RANGE = 1.001  # the axis is no narrower: equal times are no spread
LOG_FROM = 2.0  # the longest window over the shortest, from which on the axis is logarithmic
IQR_FACTOR = 3.0  # an outlier is further from the quartiles than so many times their distance


@dataclass(frozen=True)
class _Row:
    """An arm: per launch the step times in seconds, and what of them is drawn, over the median."""

    arm: str
    launches: tuple[stats.Values, ...]
    drawn: tuple[stats.Values, ...]

    @cached_property
    def all(self) -> stats.Values:
        return np.concatenate(self.launches)

    @cached_property
    def median_s(self) -> float:
        return float(np.median(self.all))

    @property
    def said(self) -> str:
        """Median, spread and outliers in words."""
        low, high = np.percentile(self.all, [25, 75])
        reach = IQR_FACTOR * (high - low)
        outliers = int(np.sum((self.all < low - reach) | (self.all > high + reach)))
        windows, launches = _count(self.all.size, "window"), _count(len(self.launches), "launch")
        shown = sum(values.size for values in self.drawn)
        thinned = "" if shown == self.all.size else f", {shown} of them drawn"
        return (
            f"{short(self.arm, NAME_LETTERS)}: median {text.seconds(self.median_s)} a step,"
            f" interquartile range {text.percent(float(high - low) / self.median_s)},"
            f" {_count(outliers, 'outlier')} in {windows} of {launches}{thinned}"
        )


@dataclass(frozen=True)
class _Axis:
    """Positions of ratios to the median, in units of the drawing."""

    low: float
    high: float

    @property
    def log(self) -> bool:
        return self.high / self.low > LOG_FROM

    def places(self, ratios: stats.Values) -> list[int]:
        """Where windows are, each place once, from left to right."""
        if self.log:
            share = np.log(ratios / self.low) / math.log(self.high / self.low)
        else:
            share = (ratios - self.low) / (self.high - self.low)
        found: list[int] = np.rint(1 + share * (WIDTH - 2)).astype(int).tolist()
        return sorted(set(found))

    def end(self, ratio: float) -> str:
        """`+1.3 %`, or `12.5×` on a log axis."""
        if self.log:
            return f"{ratio:.3g}×"
        return f"{100 * (ratio - 1):+.2g} %".replace("-", "−")


def strip(case: Case, arms: Sequence[str], most: int = MOST_WINDOWS) -> Markup:
    """All windows of these arms as ticks; empty where none was measured.

    `most` bounds the ticks of a row; the label says where windows were left out.
    """
    rows = [row for name in arms if (row := _row(case, name, most)) is not None]
    if not rows:
        return Markup("")
    axis = _axis(rows)
    parts = []
    top = 0.0
    for row in rows:
        lane = _lane_height(len(row.drawn))
        parts.append(_drawn_row(row, axis, top, lane))
        top += LABEL_HEIGHT + lane * len(row.drawn) + 3
    ends = _drawn_axis(axis, top)
    middle = axis.places(np.ones(1))[0]
    parts.insert(0, f'<path d="M{middle} 0v{top:.4g}" stroke="currentColor" opacity=".2"/>')
    label = (
        f"Windows of {short(case.technique, NAME_LETTERS)}, {text_of_case(case)}, each over its"
        f" arm's median, a lane per launch. {'; '.join(row.said for row in rows)}."
    )
    head = Markup(
        '<svg class="strip" role="img" aria-label="{}" viewBox="0 0 {} {:.0f}" width="{}"'
        ' font-size="{}" fill="currentColor">'
    ).format(label, WIDTH, top + AXIS_HEIGHT, WIDTH, TEXT_PX)
    return Markup(f"{head}{''.join(parts)}{ends}</svg>")


def text_of_case(case: Case) -> str:
    """The case as a label of bounded length."""
    return short(text.case_label(case.case_id), 3 * NAME_LETTERS)


def _row(case: Case, name: str, most: int) -> _Row | None:
    launches = [stats.step_times(arm) for arm in stats.measured_arms(case.measured, name)]
    if not launches:
        return None
    median = float(np.median(np.concatenate(launches)))
    each = max(2, most // len(launches))
    return _Row(name, tuple(launches), tuple(_thinned(one, each) / median for one in launches))


def _thinned(values: stats.Values, most: int) -> stats.Values:
    """At most so many of the values, evenly spaced in order of size, both ends among them."""
    if values.size <= most:
        return values
    kept = np.linspace(0, values.size - 1, most).astype(int)
    return np.asarray(np.sort(values)[kept], dtype=np.float64)


def _axis(rows: Sequence[_Row]) -> _Axis:
    drawn = [values for row in rows for values in row.drawn]
    low = min(float(values.min()) for values in drawn)
    high = max(float(values.max()) for values in drawn)
    if high / low < LEAST_RANGE:
        return _Axis(min(low, 1 / LEAST_RANGE), max(high, LEAST_RANGE))
    return _Axis(low, high)


def _lane_height(launches: int) -> float:
    return max(LEAST_LANE, min(LANES_HEIGHT / launches, LANES_HEIGHT / 2))


def _drawn_row(row: _Row, axis: _Axis, top: float, lane: float) -> str:
    base = top + LABEL_HEIGHT - 4
    name, median = escape(short(row.arm, NAME_LETTERS)), text.seconds(row.median_s)
    return (
        f'<text y="{base:.0f}">{name}</text>'
        f'<text x="{WIDTH}" y="{base:.0f}" text-anchor="end">median {median}</text>'
        f'<path d="{_ticks(row, axis, top + LABEL_HEIGHT, lane)}" stroke="currentColor"/>'
    )


def _ticks(row: _Row, axis: _Axis, top: float, lane: float) -> str:
    """Up and down in turn, so that a tick needs no way back."""
    length = max(1, round(lane - 1))  # no digits behind the point: thousands of ticks repeat them
    ways = (f" 0v{length}", f" 0v-{length}")
    parts = []
    for number, values in enumerate(row.drawn):
        places = axis.places(values)
        parts.append(f"M{places[0]} {top + number * lane:.4g}v{length}")
        steps = enumerate(b - a for a, b in pairwise(places))
        parts += [f"m{step}{ways[1 - i % 2]}" for i, step in steps]
    return "".join(parts)


def _drawn_axis(axis: _Axis, top: float) -> str:
    middle = "each window over its arm's median" + (", log scale" if axis.log else "")
    base = f'y="{top + TEXT_PX + 1:.4g}"'
    return (
        f'<g opacity=".75"><path d="M0 {top:.4g}h{WIDTH}" stroke="currentColor"/>'
        f"<text {base}>{axis.end(axis.low)}</text>"
        f'<text x="{WIDTH // 2}" {base} text-anchor="middle">{middle}</text>'
        f'<text x="{WIDTH}" {base} text-anchor="end">{axis.end(axis.high)}</text></g>'
    )


def _count(number: int, what: str) -> str:
    plural = f"{what}es" if what.endswith("ch") else f"{what}s"
    return f"{number} {what if number == 1 else plural}"
