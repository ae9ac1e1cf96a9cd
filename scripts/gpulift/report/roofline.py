"""How close each case comes to its roof: a roofline, and the share of its roof for all of them.

The roofs are those measured on the same card. The arithmetic intensity of a product is an upper
bound: operations over the least possible traffic, each matrix moved once (S. Williams, A. Waterman,
D. Patterson, Communications of the ACM 52(4) (2009), 65-76). What counts bytes only, and a training
step, whose traffic nobody counts, have no place on the log axis of intensity and stand in the
second panel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from gpulift.analysis.summary import Roof, Summary, work, work_of
from gpulift.ground import text
from gpulift.ground.estimate import Estimate
from gpulift.records.model import Arm
from gpulift.report import plots
from gpulift.report.drawing import Drawing
from gpulift.verdicts import stats
from gpulift.verdicts.cases import Case

# Bytes of an element of the operands and of the product, as workloads/matmul.hpp has them.
ELEMENT_BYTES = {
    "fp32": (4, 4),
    "tf32": (4, 4),
    "fp16": (2, 2),
    "bf16": (2, 2),
    "fp8": (1, 2),
    "int8": (1, 4),
}
GEMM = "gemm/"
MEMORY = "device_memory"
SHAPE = re.compile(r"([1-9]\d*)x([1-9]\d*)x([1-9]\d*)")
TOP_IN = 3.9
BOTTOM_IN = 0.75
NEAR = 1.35  # ceilings that are nearer than this factor share a label
SAID_ROOFS = 8
HEADROOM = 2.4  # above the highest line, for a name
SHARE_STEP = 0.002  # points nearer than this are one
NAME_LETTERS = 40
FORMAT_LETTERS = 12
SHARE_LETTERS = 52


@dataclass(frozen=True)
class Point:
    """An arm of a case under its roof. `intensity` is in FLOP/byte, None where it is not known.

    A training `step` is one that counts samples or tokens.
    """

    technique: str
    case_id: str
    arm: str
    roof: str
    regime: str
    rate: Estimate
    unit: str
    share: float
    intensity: float | None
    ceiling: bool
    step: bool

    @property
    def at(self) -> tuple[float, float]:
        """Where it is in the roofline: FLOP/byte and FLOP/s."""
        assert self.intensity is not None, "only points with an intensity are placed"
        return self.intensity, self.rate.value

    @property
    def label(self) -> str:
        """`bf16, 8192x8192x8192`."""
        case = text.case_label(self.case_id, short=True)
        return plots.short(f"{self.arm}, {case}", NAME_LETTERS)


def points(summary: Summary, others: Iterable[Summary] = ()) -> list[Point]:
    """Every measured arm of every case whose roof was measured in the same regime.

    `others` are runs of the machine without roofs, which are held against those of this one.
    """
    roofs = {(roof.name, roof.regime): roof for roof in summary.roofs}
    found = []
    for case in chain(summary.cases, *(other.cases for other in others)):
        for arm in case.first.arms:
            roof = roofs.get((arm.cost.roof, case.first.pace)) if arm.cost else None
            if roof is not None:
                found.append(_point(case, arm, roof))
    return [point for point in found if point is not None]


def unplaced(summary: Summary) -> list[str]:
    """Techniques of which no measured arm names a roof that was measured in its regime."""
    roofs = {(roof.name, roof.regime) for roof in summary.roofs}
    placed: dict[str, bool] = {}
    for record in summary.run.records:
        if record.kind == "technique" and record.outcome == "ok":
            named = ((arm.cost.roof, record.pace) for arm in record.arms if arm.cost)
            here = any(one in roofs for one in named)
            placed[record.technique] = placed.get(record.technique, False) or here
    return sorted(technique for technique, here in placed.items() if not here)


def least_traffic(case: Case, arm: Arm) -> float | None:
    """Bytes that a step cannot do without: as the cost counts them, else each matrix once.

    None where the record holds no shape whose operations are those of the cost.
    """
    if arm.cost is None:
        return None
    if arm.cost.bytes > 0:
        return arm.cost.bytes
    sizes = ELEMENT_BYTES.get(arm.cost.roof.removeprefix(GEMM))
    words = case.first.notes.get(f"shape/{arm.name}") or case.first.case.get("shape", "")
    shape = SHAPE.fullmatch(str(words)[:NAME_LETTERS])
    if sizes is None or shape is None:
        return None
    m, n, k = (int(part) for part in shape.groups())
    if 2.0 * m * n * k != arm.cost.flops:
        return None
    return float((m + n) * k * sizes[0] + m * n * sizes[1])


def drawing(summary: Summary, number: int, others: Iterable[Summary] = ()) -> Drawing | None:
    """The roofline of a machine and the shares of its roofs; None where no roof was measured."""
    found = points(summary, others)
    if not found:
        return None
    name, said = f"roofline-{number}", _finding(summary, found)
    return Drawing(name, said, partial(_figure, summary, found))


# --- Points ---


def _point(case: Case, arm: Arm, roof: Roof) -> Point | None:
    launches = case.arms.get(arm.name)
    rate = stats.rate_over(launches, work) if launches else None
    if rate is None or arm.cost is None:
        return None
    unit = work_of(arm.cost)[1]
    traffic = least_traffic(case, arm) if roof.name.startswith(GEMM) else None
    return Point(
        technique=case.technique,
        case_id=case.case_id,
        arm=arm.name,
        roof=roof.name,
        regime=roof.regime,
        rate=rate,
        unit=unit,
        share=rate.value / roof.rate.value if case.first.ceiling else roof.share(rate),
        intensity=arm.cost.flops / traffic if traffic else None,
        ceiling=case.first.ceiling,
        step=bool(arm.cost.item),
    )


# --- The figure ---


def _figure(summary: Summary, found: Sequence[Point]) -> Figure:
    placed = [point for point in found if point.intensity is not None]
    rows = _rows(summary, found)
    with matplotlib.rc_context(plots.STYLE):
        bottom_in = plots.ROW_IN * len(rows) + BOTTOM_IN
        if not placed:
            figure = Figure(figsize=(plots.WIDTH_IN, bottom_in), layout="constrained")
            _draw_shares(figure.subplots(), rows)
            return figure
        size = (plots.WIDTH_IN, TOP_IN + bottom_in)
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subfigures(2, 1, squeeze=False, height_ratios=[TOP_IN, bottom_in])
        _draw_roofline(panels[0, 0], summary.roofs, placed)
        _draw_shares(panels[1, 0].subplots(), rows)
        return figure


def _draw_roofline(panel: SubFigure, roofs: Sequence[Roof], placed: Sequence[Point]) -> None:
    axes = panel.subplots()
    gemm = [roof for roof in roofs if roof.name.startswith(GEMM)]
    memory = [roof for roof in roofs if roof.name == MEMORY]
    names = list(dict.fromkeys(roof.name for roof in gemm))
    slopes = [one.rate.value for one in memory]
    low, high = _intensity_range(placed, gemm, slopes)
    for roof in memory:
        _slope(axes, roof.rate.value, low, high, gemm, _style(roof.regime))
        if roof.peak:
            _slope(axes, roof.peak, low, high, gemm, ":")
    for roof in gemm:
        colour = _colour(names, roof.name)
        start = roof.rate.value / max(slopes) if slopes else low
        axes.plot([start, high], [roof.rate.value] * 2, _style(roof.regime), color=colour, lw=1.3)
    for peak in {roof.peak for roof in gemm if roof.peak}:
        start = peak / max(slopes) if slopes else low
        axes.plot([start, high], [peak] * 2, ":", color=plots.MUTED, lw=0.8, zorder=0)
    _draw_points(axes, placed, names)
    _name_ends(axes, placed)
    _dress(axes, low, high, placed, gemm)
    _label_ceilings(axes, gemm)
    panel.legend(handles=_legend(names), loc="outside upper left", ncols=3, fontsize=9)


def _draw_points(axes: Axes, placed: Sequence[Point], names: Sequence[str]) -> None:
    """Filled where measured in bursts, hollow where sustained, large where it is the ceiling."""
    groups: dict[tuple[str, str, bool], list[Point]] = {}
    for point in placed:
        groups.setdefault((point.roof, point.regime, point.ceiling), []).append(point)
    for (roof, regime, ceiling), members in groups.items():
        colour = _colour(names, roof)
        axes.plot(
            [point.at[0] for point in members],
            [point.at[1] for point in members],
            _marker(names, roof),
            color=colour,
            markerfacecolor="none" if regime == "sustained" else colour,
            markersize=7 if ceiling else 4.5,
        )


def _intensity_range(
    placed: Sequence[Point], gemm: Sequence[Roof], slopes: Sequence[float]
) -> tuple[float, float]:
    """From a little left of the first ridge or point to a little right of the last point."""
    ends = [point.intensity for point in placed if point.intensity]
    if slopes:
        ends += [roof.rate.value / max(slopes) for roof in gemm]
    return min(ends) / 3, max(ends) * 1.6


def _slope(
    axes: Axes, rate: float, low: float, high: float, gemm: Sequence[Roof], style: str
) -> None:
    """What memory allows, up to the highest ceiling."""
    most = max((roof.rate.value for roof in gemm), default=rate * high)
    end = min(high, most / rate)
    datasheet = style == ":"
    axes.plot(
        [low, end],
        [low * rate, end * rate],
        style,
        color=plots.MUTED if datasheet else plots.INK,
        lw=0.8 if datasheet else 1.3,
        zorder=0 if datasheet else 2,
    )


def _dress(
    axes: Axes, low: float, high: float, placed: Sequence[Point], gemm: Sequence[Roof]
) -> None:
    tops = [value for roof in gemm for value in (roof.rate.value, roof.peak or 0.0)]
    rates = [point.rate.value for point in placed]
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(min(rates) / 2.5, max([*tops, *rates]) * HEADROOM)
    axes.xaxis.set_major_locator(LogLocator(base=10, numticks=6))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(base=10, numticks=6))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _round_rate(value)))
    axes.grid(visible=True, linewidth=0.6)
    axes.set_ylabel("rate (more is better)")
    axes.set_xlabel("FLOP per byte, each matrix moved once (log scales)")


def _round_rate(value: float) -> str:
    """A power of ten as a tick: `100 TFLOP/s`."""
    factor, prefix = next((p for p in text.PREFIXES if value >= p[0]), text.PREFIXES[-1])
    return f"{value / factor:.0f} {prefix}FLOP/s"


def _label_ceilings(axes: Axes, gemm: Sequence[Roof]) -> None:
    """The formats of each ceiling at its right end; those that are near each other together."""
    highest: dict[str, float] = {}
    for roof in gemm:
        highest[roof.name] = max(highest.get(roof.name, 0.0), roof.rate.value)
    groups: list[list[str]] = []
    for name in sorted(highest, key=lambda one: highest[one]):
        if groups and highest[name] / highest[groups[-1][0]] < NEAR:
            groups[-1].append(name)
        else:
            groups.append([name])
    across = axes.get_yaxis_transform()
    for group in groups:
        said = "\n".join(
            plots.short(name.removeprefix(GEMM), FORMAT_LETTERS) for name in reversed(group)
        )
        middle = (highest[group[0]] * highest[group[-1]]) ** 0.5
        axes.text(1.01, middle, said, transform=across, va="center", fontsize=9, linespacing=1.0)


def _name_ends(axes: Axes, placed: Sequence[Point]) -> None:
    """Names the points that come nearest to their roof and stay furthest below it."""
    mine = [point for point in placed if not point.ceiling]
    if not mine:
        return
    ends = [(max(mine, key=_share), (0.02, 0.94), "left")]
    if len(mine) > 1:
        ends.append((min(mine, key=_share), (0.98, 0.05), "right"))
    for point, place, side in ends:
        axes.annotate(
            f"{point.label}: {_percent(point.share)} of its roof",
            point.at,
            xytext=place,
            textcoords="axes fraction",
            ha=side,
            fontsize=9,
            arrowprops={"arrowstyle": "-", "color": plots.MUTED, "linewidth": 0.7},
        )


def _legend(names: Sequence[str]) -> list[Line2D]:
    """Markers by format, and what lines and hollow markers mean."""
    handles = []
    for name in names:
        said = plots.short(name.removeprefix(GEMM), FORMAT_LETTERS)
        colour, marker = _colour(names, name), _marker(names, name)
        handles.append(Line2D([], [], color=colour, marker=marker, linestyle="none", label=said))
    hollow: Any = {"linestyle": "--", "marker": "o", "markerfacecolor": "none"}
    return [
        *handles,
        Line2D([], [], color=plots.INK, label="measured, burst"),
        Line2D([], [], color=plots.INK, label="sustained", **hollow),
        Line2D([], [], color=plots.MUTED, linestyle=":", linewidth=0.8, label="datasheet"),
    ]


@dataclass(frozen=True)
class _Row:
    """A roof and the shares of it that techniques reached."""

    name: str
    label: str
    burst: tuple[float, ...]
    sustained: tuple[float, ...]
    launches: tuple[Estimate, ...]
    own: bool  # no technique has this roof: its own cases are shown

    @property
    def shares(self) -> str:
        """`3 to 99 %`, `own cases 100 %`."""
        both = [*self.burst, *self.sustained]
        low, high = f"{100 * min(both):.0f}", f"{100 * max(both):.0f}"
        own = "own cases " if self.own else ""
        return own + (f"{high} %" if low == high else f"{low} to {high} %")


def _rows(summary: Summary, found: Sequence[Point]) -> list[_Row]:
    """A row per roof: what techniques reached of it, or what its own cases did; one for steps."""
    rates: dict[str, list[str]] = {}
    for roof in sorted(summary.roofs, key=lambda one: one.regime):
        regime = "" if roof.regime == "burst" else f"{roof.regime} "
        copied = f", copied {text.rate(roof.copied.value, roof.unit)}" if roof.copied else ""
        said = f"{regime}{text.rate(roof.rate.value, roof.unit)}{copied}"
        rates.setdefault(roof.name, []).append(said)
    rows = []
    for name in dict.fromkeys(roof.name for roof in summary.roofs):
        under = [point for point in found if point.roof == name]
        steps = [point for point in under if point.step]
        own = [point for point in under if point.ceiling]
        mine = [point for point in under if not point.step and not point.ceiling]
        label = f"{name}: {', '.join(rates[name])}"
        if mine or own:
            rows.append(_row(name, label, mine or own, own=not mine))
        if steps:
            rows.append(_row(f"training steps of {name}", f"training steps, of {name}", steps))
    return rows


def _row(name: str, label: str, shown: Sequence[Point], own: bool = False) -> _Row:
    return _Row(
        name=name,
        label=label,
        burst=_distinct(one.share for one in shown if one.regime != "sustained"),
        sustained=_distinct(one.share for one in shown if one.regime == "sustained"),
        launches=tuple(one.rate for one in shown),
        own=own,
    )


def _distinct(shares: Iterable[float]) -> tuple[float, ...]:
    return tuple(sorted({round(share / SHARE_STEP) * SHARE_STEP for share in shares}))


def _draw_shares(axes: Axes, rows: Sequence[_Row]) -> None:
    plots.prepare_rows(axes, len(rows))
    for position, row in enumerate(rows):
        axes.plot([0, 100], [position] * 2, color=plots.GRID, linewidth=1, zorder=0)
        axes.plot([100] * 2, [position - 0.2, position + 0.2], color=plots.INK, linewidth=1.3)
        for shares, colour, marker in (
            (row.burst, plots.BLUE, "o"),
            (row.sustained, plots.ORANGE, "s"),
        ):
            places = [100 * share for share in shares]
            level = [position] * len(places)
            axes.plot(places, level, marker, color=colour, markersize=4.5)
        label = plots.short(row.label, SHARE_LETTERS)
        plots.row_text(axes, 0, position - 0.28, label, fontsize=9)
        plots.row_text(axes, 1, position - 0.28, row.shares, ha="right", weight="bold", fontsize=9)
    most = max(100 * share for row in rows for share in (*row.burst, *row.sustained))
    axes.set_xlim(0, max(102.0, 1.02 * most))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f} %"))
    counted = plots.launches(one for row in rows for one in row.launches)
    axes.set_xlabel(f"each case and arm: share of its measured roof (more is better)\n{counted}")


def _style(regime: str) -> str:
    return "--" if regime == "sustained" else "-"


def _colour(names: Sequence[str], name: str) -> str:
    return plots.SERIES[names.index(name) % len(plots.SERIES)]


def _marker(names: Sequence[str], name: str) -> str:
    return plots.MARKERS[names.index(name) % len(plots.MARKERS)]


# --- In words ---


def _finding(summary: Summary, found: Sequence[Point]) -> str:
    """What the figure shows: the nearest and the furthest, then the range under each roof."""
    machine = plots.short(summary.run.machine, NAME_LETTERS)
    mine = [point for point in found if not point.ceiling]
    products = [point for point in mine if point.intensity is not None]
    parts = [f"Roofline of {machine}." if products else f"Shares of the roofs of {machine}."]
    mine = products or mine
    if mine:
        best, worst = max(mine, key=_share), min(mine, key=_share)
        parts.append(f"Nearest to its measured roof: {_placed(best)}; furthest: {_placed(worst)}.")
    rows = _rows(summary, found)
    shares = [f"{_name(row.name)} {row.shares}" for row in rows]
    more = f" and {len(rows) - SAID_ROOFS} more" if len(rows) > SAID_ROOFS else ""
    parts.append(f"Shares by roof: {'; '.join(shares[:SAID_ROOFS])}{more}.")
    return " ".join(parts)


def _placed(point: Point) -> str:
    return f"{point.label}, {_percent(point.share)} of {_name(point.roof)}"


def _name(roof: str) -> str:
    return plots.short(roof, NAME_LETTERS)


def _share(point: Point) -> float:
    return point.share


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
