"""The forest plot inside a table: ratios against 1 as small drawings, one per row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from gpulift.ground import text
from gpulift.ground.estimate import Estimate

WIDTH, HEIGHT = 150, 16
MIDDLE = HEIGHT // 2
MARGIN = 6  # half a marker
MOST = 64.0  # times more or less: beyond it a marker stands at the edge, so that others keep apart
# Shapes as well as colours: up is faster, down is slower, a circle is neither.
SHAPES = {"faster": "l4.5 8h-9z", "slower": "l-4.5 -8h9z"}
STARTS = {"faster": MIDDLE - 4, "slower": MIDDLE + 4}
CIRCLE = "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0"


@dataclass(frozen=True)
class Scale:
    """A log axis of ratios that holds 1."""

    low: float
    high: float
    cut: bool = False

    def x(self, ratio: float) -> float:
        """Where a ratio is, in the drawing's units."""
        inside = min(max(ratio, self.low), self.high)
        share = math.log(inside / self.low) / math.log(self.high / self.low)
        return round(MARGIN + share * (WIDTH - 2 * MARGIN), 1)

    @property
    def label(self) -> str:
        """Both ends in words."""
        cut = ", the rest at its edge" if self.cut else ""
        return f"{text.ratio(self.low)} to {text.ratio(self.high)}{cut}, log scale, line at 1"


def scale(estimates: Iterable[Estimate]) -> Scale:
    """The axis of a table: all of its intervals, and 1."""
    ends = [1.0]
    for one in estimates:
        ends += [end for end in (one.low, one.value, one.high) if end and math.isfinite(end)]
    low, high = max(min(ends), 1 / MOST), min(max(ends), MOST)
    cut = low > min(ends) or high < max(ends)
    return Scale(low, high, cut) if high / low > 1.02 else Scale(low / 1.01, high * 1.01)


def draw(estimates: Sequence[Estimate], axis: Scale) -> Markup:
    """Markers with their intervals; the numbers stand beside it, so that readers skip it."""
    one = f"{axis.x(1.0):g}"
    parts = [f'<path class="one" d="M{one} 0v{HEIGHT}"/>']
    parts += [_marker(estimate, axis) for estimate in estimates]
    inside = "".join(parts)
    # Only numbers and words of this module are in it.
    return Markup(
        f'<svg class="f" viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true">{inside}</svg>'
    )


def _marker(estimate: Estimate, axis: Scale) -> str:
    word = text.verdict(estimate)[1]
    kind = word if word in SHAPES else "neither"
    x = axis.x(estimate.value)
    line = ""
    if estimate.low and estimate.high:
        left, right = axis.x(estimate.low), axis.x(estimate.high)
        line = f"M{left:g} {MIDDLE}H{right:g}"
    shape = f"M{x:g} {STARTS[kind]}{SHAPES[kind]}" if kind in SHAPES else f"M{x:g} {MIDDLE}{CIRCLE}"
    return f'<path class="{kind}" d="{line}{shape}"/>'
