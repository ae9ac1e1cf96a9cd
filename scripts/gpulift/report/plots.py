"""Figures: one function per figure, each returns it. Narrow enough to be read on a phone.

Colours are Okabe and Ito's, which people with any colour vision tell apart, and every series also
has its own marker or hatch. Colours of text and lines are named, so that a page can theme them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from gpulift import text
from gpulift.certify.certificate import Detection
from gpulift.report.summary import Roof, Worth
from gpulift.stats import Estimate

matplotlib.use("Agg")

WIDTH_IN = 5.0
LABEL_LETTERS = 60
ROW_IN = 0.42
DODGE = 1.06  # of sizes on a log axis, between kinds of rows
SPEEDUP_AXIS = "speedup with its 95 % interval (above 1: faster)"
INK = "#1a1a1b"
MUTED = "#6b6b6c"
GRID = "#d8d8d9"
BLUE, ORANGE, GREEN, VERMILLION = "#0072b2", "#e69f00", "#009e73", "#d55e00"
SERIES = (BLUE, ORANGE, GREEN, VERMILLION, "#cc79a7", "#56b4e9", "#999933")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
STYLE: Any = {
    "font.size": 10.0,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GRID,
    "svg.fonttype": "none",
    "legend.frameon": False,
}
VERDICTS = {"faster": (BLUE, "^"), "slower": (VERMILLION, "v")}


@dataclass(frozen=True)
class ForestRow:
    """One comparison: what it is, and its estimate."""

    label: str
    estimate: Estimate
    value: str
    slower_is_above: bool = False

    @property
    def verdict(self) -> str:
        """Which side of 1 the whole interval is on."""
        ratio = self.estimate.inverse() if self.slower_is_above else self.estimate
        return text.verdict(ratio)[1]


def worth_row(row: Worth, short: bool = False) -> ForestRow:
    """A speedup as a row of a forest plot; `short` leaves out the technique."""
    case = text.case_label(row.case.case_id, short=True)
    glyph, _ = text.verdict(row.speedup)
    label = f"{row.arm}, {case}" if short else f"{row.technique}: {row.arm}, {case}"
    return ForestRow(label, row.speedup, f"{glyph} {_ratio(row.speedup.value)}")


def forest(rows: Sequence[ForestRow], axis: str) -> Figure:
    """Ratios with their intervals on a log axis; the marker says which side of 1 they are on."""
    with matplotlib.rc_context(STYLE):
        figure, axes = _row_figure(len(rows))
        for position, row in enumerate(rows):
            colour, marker = VERDICTS.get(row.verdict, (MUTED, "o"))
            low, high = row.estimate.low, row.estimate.high
            if low is not None and high is not None:
                axes.plot([low, high], [position] * 2, color=colour, linewidth=2.2)
            axes.plot(row.estimate.value, position, marker, color=colour, markersize=6)
            axes.plot([1, 1], [position - 0.2, position + 0.2], color=MUTED, zorder=0)
            _row_label(axes, position, row.label, row.value)
        ends = [v for r in rows for v in (r.estimate.low, r.estimate.high, r.estimate.value) if v]
        _ratio_axis(axes, ends, axis)
        return figure


def roof_bars(roofs: Sequence[Roof]) -> Figure | None:
    """Measured ceilings as fractions of the datasheet; None where no datasheet is known."""
    known = [roof for roof in roofs if roof.fraction is not None]
    if not known:
        return None
    with matplotlib.rc_context(STYLE):
        figure, axes = _row_figure(len(known))
        for position, roof in enumerate(known):
            share = 100 * (roof.fraction or 0.0)
            sustained = roof.regime == "sustained"
            axes.barh(position, 100, height=0.32, color=GRID)
            axes.barh(
                position,
                share,
                height=0.32,
                color=ORANGE if sustained else BLUE,
                hatch="////" if sustained else None,
                edgecolor="white",
                linewidth=0,
            )
            rate = text.rate(roof.rate.value, roof.unit)
            _row_label(axes, position, f"{roof.name}, {roof.regime}", f"{rate}, {share:.1f} %")
        axes.set_xlim(0, max(100.0, *(100 * (roof.fraction or 0) for roof in known)))
        axes.set_xlabel("measured, % of the datasheet (full bar)")
        return figure


def detection(lines: Sequence[Detection]) -> Figure:
    """The share of planted slow-downs that was found, by size, down to its 95 % bound.

    Sizes of different kinds of rows are drawn a little apart, so that their bars can be told apart.
    """
    kinds = list(dict.fromkeys(line.bound_by for line in lines))
    sizes = sorted({100 * line.size for line in lines})
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_IN, 2.9), layout="constrained")
        axes = figure.subplots()
        for number, kind in enumerate(kinds):
            mine = sorted((one for one in lines if one.bound_by == kind), key=lambda one: one.size)
            shares = [100 * one.found / one.trials for one in mine]
            below = [s - 100 * one.lower for s, one in zip(shares, mine, strict=True)]
            apart = DODGE ** (number - (len(kinds) - 1) / 2)
            axes.errorbar(
                [100 * one.size * apart for one in mine],
                shares,
                yerr=[below, [0.0] * len(mine)],
                color=SERIES[number % len(SERIES)],
                marker=MARKERS[number % len(MARKERS)],
                markersize=5,
                linewidth=1.4,
                capsize=2,
                label=f"bound by {kind}",
            )
        axes.set_ylim(-4, 104)
        axes.set_xscale("log")
        axes.set_xlim(sizes[0] / 1.3, sizes[-1] * 1.3)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_locator(FixedLocator(sizes))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
        axes.grid(visible=True, linewidth=0.6)
        axes.set_xlabel("planted slow-down, % (log scale)")
        axes.set_ylabel("found, %, with its 95 % bound")
        figure.legend(loc="outside upper left", ncols=2, fontsize=9)
        return figure


def sweep(rows: Sequence[Worth]) -> Figure:
    """Speedup along a numeric axis of the cases, a panel for each value of the other axes."""
    axis = sweep_axis(rows)
    assert axis is not None, "sweep_axis says whether there is one"
    panels: dict[str, list[Worth]] = {}
    for row in rows:
        panels.setdefault(_other_axes(row, axis), []).append(row)
    arms = list(dict.fromkeys(arm for row in rows for arm in _arm_order(row) if _has(rows, arm)))
    with matplotlib.rc_context(STYLE):
        height = (
            0.6 + (1.75 if len(panels) > 1 else 2.3) * len(panels) + 0.2 * math.ceil(len(arms) / 3)
        )
        figure = Figure(figsize=(WIDTH_IN, height), layout="constrained")
        grid = figure.subplots(len(panels), 1, sharex=True, sharey=True, squeeze=False)
        for axes, (title, members) in zip(grid[:, 0], panels.items(), strict=True):
            _sweep_panel(axes, members, axis, arms)
            axes.set_title(title, fontsize=10, loc="left")
        grid[-1, 0].set_xlabel(f"{axis} (log scale)")
        figure.supylabel("speedup (above 1: faster)", fontsize=10)
        handles, labels = _legend(list(grid[:, 0]))
        figure.legend(handles, labels, loc="outside upper left", ncols=3, fontsize=9)
        return figure


def sweep_axis(rows: Sequence[Worth]) -> str | None:
    """The numeric axis with most values, if it has at least three."""
    values: dict[str, set[float]] = {}
    for row in rows:
        for axis, value in row.case.first.case.items():
            if not isinstance(value, str) and value > 0:
                values.setdefault(axis, set()).add(value)
    best = max(values, key=lambda axis: len(values[axis]), default=None)
    return best if best is not None and len(values[best]) >= 3 else None


def _has(rows: Sequence[Worth], arm: str) -> bool:
    return any(row.arm == arm for row in rows)


def _arm_order(row: Worth) -> list[str]:
    return [arm.name for arm in row.case.first.arms]


def _legend(panels: Sequence[Axes]) -> tuple[list[Artist], list[str]]:
    found: dict[str, Artist] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return list(found.values()), list(found)


def _sweep_panel(axes: Axes, rows: Sequence[Worth], axis: str, arms: Sequence[str]) -> None:
    for number, arm in enumerate(arms):
        points = sorted((float(r.case.first.case[axis]), r.speedup) for r in rows if r.arm == arm)
        if not points:
            continue
        below = [e.value - (e.value if e.low is None else e.low) for _, e in points]
        above = [(e.value if e.high is None else e.high) - e.value for _, e in points]
        axes.errorbar(
            [x for x, _ in points],
            [e.value for _, e in points],
            yerr=[below, above],
            color=SERIES[number % len(SERIES)],
            marker=MARKERS[number % len(MARKERS)],
            markersize=5,
            linewidth=1.4,
            capsize=2,
            label=arm,
        )
    axes.axhline(1, color=MUTED, linewidth=1, linestyle="--")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.grid(visible=True, linewidth=0.6)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}×"))
    axes.xaxis.set_major_locator(LogLocator(base=2, numticks=6))
    axes.xaxis.set_minor_locator(NullLocator())
    as_bytes = axis.endswith("bytes")
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: text.round_size(value) if as_bytes else f"{value:.0f}")
    )


def _other_axes(row: Worth, axis: str) -> str:
    others = [f"{k} {v}" for k, v in row.case.first.case.items() if k != axis]
    return ", ".join(others)


def _row_figure(rows: int) -> tuple[Figure, Axes]:
    """Rows with a line of text above each, from the top down."""
    figure = Figure(figsize=(WIDTH_IN, ROW_IN * rows + 0.55), layout="constrained")
    axes = figure.subplots()
    axes.set_ylim(rows - 0.55, -0.8)
    axes.yaxis.set_major_locator(NullLocator())
    axes.spines["left"].set_visible(False)
    return figure, axes


def _row_label(axes: Axes, position: int, label: str, value: str) -> None:
    across = axes.get_yaxis_transform()
    axes.text(
        0, position - 0.3, _short(label, LABEL_LETTERS - len(value)), transform=across, va="bottom"
    )
    axes.text(1, position - 0.3, value, transform=across, va="bottom", ha="right", weight="bold")


def _ratio(value: float) -> str:
    return f"{value:.3f}×" if 0.95 < value < 1.05 else f"{text.digits(value)}×"


def _short(label: str, length: int) -> str:
    return label if len(label) <= length else f"{label[: length - 1]}…"


def _ratio_axis(axes: Axes, ends: Sequence[float], label: str) -> None:
    """A log axis around 1 with ticks that read as ratios."""
    low, high = min(1.0, *ends), max(1.0, *ends)
    margin = max((high / low) ** 0.06, 1.0005)
    axes.set_xscale("log")
    axes.set_xlim(low / margin, high * margin)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_locator(FixedLocator(ratio_ticks(low / margin, high * margin)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.6g}"))
    axes.set_xlabel(label)


def ratio_ticks(low: float, high: float) -> list[float]:
    """1 and round values around it: a step of 2, 5 or 10 for wide ranges, even steps for narrow."""
    if high / low > 3:
        every = 2.0 if high / low < 100 else 10.0
        exponents = range(math.ceil(math.log(low, every)), math.floor(math.log(high, every)) + 1)
        return [every**exponent for exponent in exponents]
    step = 10 ** math.floor(math.log10(high - low))
    if (high - low) / step < 2:
        step /= 4
    elif (high - low) / step < 5:
        step /= 2
    first = math.ceil((low - 1) / step)
    last = math.floor((high - 1) / step)
    thin = max(1, math.ceil((last - first + 1) / 6))
    return [1 + step * k for k in range(first, last + 1) if k % thin == 0]
