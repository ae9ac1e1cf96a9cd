"""What each way to need less memory costs: speed over peak memory, each over the same baseline."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from gpulift.analysis.arm_names import setting
from gpulift.analysis.bounds import HOST, bound_of
from gpulift.analysis.facts import facts
from gpulift.analysis.gains import FIRST_MODELS
from gpulift.ground import text
from gpulift.ground.estimate import Estimate
from gpulift.report import escaping, plots
from gpulift.report.drawing import Drawing
from gpulift.verdicts import stats
from gpulift.verdicts.cases import Case

GIB = 1 << 30
ONE = Estimate(1.0)  # of the baseline
LETTERS = 8.0  # points
POINTS = 72  # an inch
AS_SMALL = 1.01  # times another's memory
SIGNS = "hollow: the host issues or waits throughout\ngrey: another is as small and faster"
INSET = 4  # pixels from the axis
DOT = 8.0  # pixels across, and a little around it
NEAR = 5  # points
LINE = {"arrowstyle": "-", "color": plots.MUTED, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3}
FROM = {"left": (0, 0.5), "right": (1, 0.5), "center": (0.5, 0.5)}  # of a label's box
# Where a label may stand beside its point, the best first: how it is aligned, and how far away.
PLACES = (
    ("left", "center", 7, 0),
    ("right", "center", -7, 0),
    *(
        (across, up, right, above * far)
        for far in (NEAR, 14, 23, 32, 41, 50)
        for across, right in (("left", 4), ("right", -4), ("center", 0))
        for up, above in (("bottom", 1), ("top", -1))
    ),
)


@dataclass(frozen=True)
class Point:
    """An arm and its name: its speed vs the baseline, its peak memory, whether the host
    issues or waits throughout, and whether it is on the frontier: no other is surely faster in as
    little memory."""

    arm: str
    name: str
    speed: Estimate
    memory_bytes: int
    waits: bool
    best: bool


def points_of(case: Case, withheld: Collection[str] = ()) -> list[Point]:
    """The measured arms of a case, the baseline first, but for those `withheld`."""
    baseline = next(arm.name for arm in case.first.arms if arm.role == "baseline")
    held = {name: facts(case, name).device_bytes for name in case.arms if name not in withheld}
    found = []
    for name, memory in held.items():
        speed = ONE if name == baseline else _speed_over(case, name, baseline)
        if memory and speed:
            waits = bound_of(case.measured, name).kind == HOST
            as_small = (one for one, size in held.items() if size and size <= AS_SMALL * memory)
            best = not any(_is_faster(case, one, name) for one in as_small if one != name)
            words, _ = setting(name, case.technique)
            found.append(Point(name, words, speed, memory, waits, best))
    return found


def _speed_over(case: Case, arm: str, other: str) -> Estimate | None:
    pair = stats.pair_ratio(case.measured, arm, other)
    return pair.speedup if pair else None


def _is_faster(case: Case, arm: str, other: str) -> bool:
    """Surely, where there is an interval."""
    speed = _speed_over(case, arm, other)
    return speed is not None and (speed.value if speed.low is None else speed.low) > 1


def drawing(name: str, case: Case, points: Sequence[Point], about: str = "") -> Drawing:
    """A point for each arm; hollow where the host issues or waits throughout, and its name grey
    where it is not on the frontier. `about` stands below."""
    gpu = case.first.context.gpu
    model = str(case.first.case.get("model", ""))
    where = FIRST_MODELS.get(model, model) + (f" on {gpu.name}" if gpu else "")
    waits = "; *the host issues or waits throughout" if any(one.waits for one in points) else ""
    alt = (
        f"{escaping.brief(where)}, speed vs {points[0].name} / peak memory:"
        f" {', '.join(_said(points))}{waits}."
    )
    return Drawing(name, alt, partial(_scatter, points, about))


def _said(points: Sequence[Point]) -> Iterator[str]:
    for one in points:
        waits = "*" if one.waits else ""
        yield f"{one.name} {_speed(one)}/{text.size(one.memory_bytes)}{waits}"


def _scatter(points: Sequence[Point], about: str) -> Figure:
    with matplotlib.rc_context(plots.STYLE):
        figure = Figure(figsize=(plots.WIDTH_IN, 4.8), layout="constrained")
        axes = figure.subplots()
        for one in points:
            face = "none" if one.waits else plots.BLUE
            at = one.memory_bytes / GIB, one.speed.value
            axes.plot(*at, "o", color=plots.BLUE, markerfacecolor=face, markersize=7)
        axes.margins(x=0.32, y=0.2)
        speeds = [one.speed.value for one in points]
        if min(speeds) < max(speeds) / 2:  # closer ones would lie on each other
            axes.set_ylim(bottom=0)
        axes.set_xlabel(f"peak memory, GiB (left: less)\n{SIGNS}", linespacing=1.4)
        axes.set_ylabel(f"speed vs {points[0].name}")
        if about:
            figure.supxlabel(about, x=0.01, ha="left", fontsize=LETTERS, color=plots.MUTED)
        _label(figure, axes, points)
        return figure


def _label(figure: Figure, axes: Axes, points: Sequence[Point]) -> None:
    """Names beside the points, each in the first place where it covers nothing, moved to stay
    inside; where there is none, in the last."""
    figure.draw_without_rendering()
    places = [(one.memory_bytes / GIB, one.speed.value) for one in points]
    taken = [_around(*axes.transData.transform(place)) for place in places]
    for one, place in zip(points, places, strict=True):
        said = f"{one.name}  {_speed(one)}"
        for across, up, right, above in PLACES:
            label = axes.annotate(
                said,
                place,
                (right, above),
                textcoords="offset points",
                ha=across,
                va=up,
                fontsize=LETTERS,
                color=plots.INK if one.best else plots.MUTED,
                in_layout=False,
                arrowprops={**LINE, "relpos": FROM[across]} if abs(above) > NEAR else None,
            )
            label.get_window_extent()  # moves it to its place
            box = Text.get_window_extent(label)  # without its line
            outside = max(0.0, axes.bbox.x0 + INSET - box.x0) - max(
                0.0, box.x1 - figure.bbox.x1 + INSET
            )
            box = box.translated(outside, 0)
            label.xyann = (right + outside * POINTS / figure.dpi, above)
            last = (across, up, right, above) == PLACES[-1]
            if last or not any(map(box.overlaps, taken)):
                taken.append(box)
                break
            label.remove()


def _around(x: float, y: float) -> Bbox:
    return Bbox.from_bounds(x - DOT / 2, y - DOT / 2, DOT, DOT)


def _speed(one: Point) -> str:
    return "1.00" if one.speed is ONE else text.ratio(one.speed.value)
