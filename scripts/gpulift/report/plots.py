"""Figures: one function per figure, each returns it. Narrow enough to be read on a phone.

Colours are Okabe and Ito's, which people with any colour vision tell apart, and every series also
has its own marker or hatch. Colours of text and lines are named, so that a page can theme them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from gpulift.analysis.gains import basis
from gpulift.analysis.summary import Roof, Worth
from gpulift.gate.certificate import Detection
from gpulift.ground import text
from gpulift.ground.estimate import Estimate
from gpulift.ground.text import visible

matplotlib.use("Agg")

WIDTH_IN = 5.0
LABEL_LETTERS = 60
BESIDE_LETTERS = 74
LABEL_OVER = 0.3  # of a label over its marks, in rows
TITLE_LETTERS = 66
ROW_IN = 0.42
BAR = 0.32  # of a row
MOST_LINES = 4  # of text below a label, as of hostile names
BESIDE_IN, LINE_IN = 0.22, 0.16  # more height where rows have such a line, and for each more
OVER_MARKS_IN, OVER_LINE_IN = 0.154, 0.198  # of the last line of text, and of the label over that
VALUE_ROOM = 1.2  # of an axis whose line must not cross the values on the right
DODGE = 1.06  # of sizes on a log axis, between kinds of rows
FACTORS = (2.0, 4.0, 10.0, 100.0, 1e4)  # between the ticks of a wide axis of ratios
MOST_TICKS = 7
SPEEDUP = "speedup (above 1: faster)"
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
    "axes.titley": 1.0,  # nothing is above an axes that a title would have to make way for
    "grid.color": GRID,
    "svg.fonttype": "none",
    "text.hinting": "no_hinting",  # it would take a quarter of a PNG's time and show little
    "text.parse_math": False,  # a dollar sign in a record's text is a dollar sign
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
    beside: str = ""  # a second line of text: memory, energy

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
    value = f"{glyph} {text.ratio(row.speedup.value)}"
    parts = [f"baseline {row.baseline}", costs(row), basis(row)]
    if not short and len(label) > LABEL_LETTERS - len(value):
        label, parts = f"{row.technique}: {row.arm}", [case, *parts]
    beside = ", ".join(filter(None, parts))
    return ForestRow(label, row.speedup, value, beside="" if short else beside)


def costs(row: Worth) -> str:
    """Memory and energy of a step, arm against baseline; empty where neither is known."""
    parts = []
    for kind, mine in row.facts.memory.items():
        theirs = row.baseline_facts.memory[kind]
        if mine and theirs:
            sizes = f"{text.size(round(mine))} against {text.size(round(theirs))}"
            parts.append(f"{kind} memory {sizes}")
            break  # the first that both have is of the device where both used it
    if row.energy_j is not None and row.baseline_energy_j is not None:
        energy = [text.joules(value) for value in (row.energy_j, row.baseline_energy_j)]
        parts.append(f"energy of a step {energy[0]} against {energy[1]}")
    return ", ".join(parts)


def launches(estimates: Iterable[Estimate]) -> str:
    """How many launches figures rest on: `3 launches`, `1 to 5 launches each`."""
    counts = sorted({one.launches for one in estimates})
    if not counts:
        return "no launches"
    if len(counts) > 1:
        return f"{counts[0]} to {counts[-1]} launches each"
    return "1 launch" if counts[0] == 1 else f"{counts[0]} launches each"


def forest(rows: Sequence[ForestRow], axis: str) -> Figure:
    """Ratios with their intervals on a log axis; the marker says which side of 1 they are on."""
    with matplotlib.rc_context(STYLE):
        beside = [_lines(row.beside) for row in rows]
        most = max(map(len, beside), default=0)
        figure, axes = row_figure(len(rows), most)
        in_rows = 1 / _row_in(most)
        over_marks = OVER_MARKS_IN * in_rows
        for position, row in enumerate(rows):
            colour, marker = VERDICTS.get(row.verdict, (MUTED, "o"))
            low, high = row.estimate.low, row.estimate.high
            if low is not None and high is not None:
                axes.plot([low, high], [position] * 2, color=colour, linewidth=2.2)
            axes.plot(row.estimate.value, position, marker, color=colour, markersize=6)
            axes.plot([1, 1], [position - 0.2, position + 0.2], color=MUTED, zorder=0)
            lines = beside[position]
            lift = (OVER_LINE_IN + LINE_IN * (len(lines) - 1)) * in_rows + over_marks
            label_row(axes, position - (lift - LABEL_OVER if lines else 0.0), row.label, row.value)
            said = "\n".join(lines)
            row_text(axes, 0, position - over_marks, said, fontsize=8, color=MUTED)
        ends = [v for r in rows for v in (r.estimate.low, r.estimate.high, r.estimate.value) if v]
        ratio_axis(axes, ends, f"{axis}\n{launches(row.estimate for row in rows)}")
        return figure


@dataclass(frozen=True)
class Bar:
    """A row of bars: of what, how long it is, that as text, and how it looks."""

    label: str
    estimate: Estimate
    value: str
    colour: str = BLUE
    hatched: bool = False


def bars(
    rows: Sequence[Bar],
    axis: str,
    *,
    line: tuple[float, str] | None = None,
    most: float = 0.0,
    full: bool = False,
    log: bool = False,
    about: str = "",
) -> Figure:
    """Bars from 0 with their intervals on an axis that reaches to `most` at least, in front of
    `full` ones; beside them a line that is named, below them what they are about. On a log axis,
    of bytes, they are marks."""
    with matplotlib.rc_context(STYLE):
        figure, axes = row_figure(len(rows))
        ends = [0.0, most]
        for position, row in enumerate(rows):
            value, low, high = row.estimate.value, row.estimate.low, row.estimate.high
            if full:
                axes.barh(position, most, height=BAR, color=GRID)
            if log:
                axes.plot(value, position, "o", color=BLUE, markersize=6)
            else:
                hatch = "////" if row.hatched else None
                style: Any = {"color": row.colour, "hatch": hatch, "edgecolor": "white"}
                axes.barh(position, value, height=BAR, linewidth=0, **style)
            if low is not None and high is not None:
                axes.plot([low, high], [position] * 2, color=BLUE if log else INK, linewidth=1.6)
            ends += [end for end in (value, low, high) if end is not None]
            label_row(axes, position, row.label, row.value)
        if line:
            axes.axvline(line[0], color=INK, linewidth=1.4, linestyle="--", label=line[1])
            ends = [0.0, VALUE_ROOM * max(line[0], *(row.estimate.value for row in rows))]
            figure.legend(loc="outside upper left", fontsize=9)
        if log:
            axes.set_xscale("log")
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: text.rate(at, "B/s")))
            axes.grid(visible=True, axis="x", linewidth=0.6)
        else:
            axes.set_xlim(1.05 * min(ends), 1.05 * max(ends))
        if min(ends) < 0:
            axes.axvline(0, color=INK, linewidth=1.0)
        axes.set_xlabel(axis)
        if about:
            figure.supxlabel(about, x=0.01, ha="left", fontsize=8, color=MUTED)
        return figure


def roof_bars(known: Sequence[Roof]) -> Figure:
    """Measured ceilings as fractions of the datasheet, whose figures must be known."""
    rows = []
    for roof in known:
        share = 100 * (roof.fraction or 0.0)
        colour = ORANGE if roof.regime == "sustained" else BLUE
        value = f"{text.rate(roof.rate.value, roof.unit)}, {share:.1f} %"
        label = f"{roof.name}, {roof.regime}"
        rows.append(Bar(label, Estimate(share), value, colour, hatched=colour == ORANGE))
    counted = launches(roof.rate for roof in known)
    axis = f"measured, % of the datasheet (full bar; more is better)\n{counted}"
    return bars(rows, axis, most=100.0, full=True)


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
                label=f"bound by {short(kind, TITLE_LETTERS // 3)}",
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


def sweep(rows: Sequence[Worth], axis: str = "", *, scaling: bool = False) -> Figure:
    """Speedup along a numeric axis of the cases, a panel for each value of the other axes; of
    `scaling` in items a second, beside a line of perfect scaling from 1 on."""
    axis = axis or sweep_axis(rows) or ""
    rows = [row for row in rows if _along(row, axis) is not None]
    panels: dict[str, list[Worth]] = {}
    for row in rows:
        panels.setdefault(other_axes(row, axis), []).append(row)
    arms = list(dict.fromkeys(arm for row in rows for arm in _arm_order(row) if _has(rows, arm)))
    with matplotlib.rc_context(STYLE):
        height = (
            0.6 + (1.75 if len(panels) > 1 else 2.3) * len(panels) + 0.2 * math.ceil(len(arms) / 3)
        )
        figure = Figure(figsize=(WIDTH_IN, height), layout="constrained")
        grid = figure.subplots(len(panels), 1, sharex=True, sharey=True, squeeze=False)
        for axes, (title, members) in zip(grid[:, 0], panels.items(), strict=True):
            _sweep_panel(axes, members, axis, arms)
            if scaling:
                ends = [1.0, max(_along(row, axis) or 1.0 for row in rows)]
                axes.plot(ends, ends, "--", color=INK, linewidth=1, label="perfect")
            axes.set_title(short(title, TITLE_LETTERS), fontsize=10, loc="left")
        grid[-1, 0].set_xlabel(f"{short(axis, TITLE_LETTERS)} (log scale)")
        figure.supylabel("items/s, over one GPU" if scaling else SPEEDUP, fontsize=10)
        level = f"bars: 95 % intervals, {launches(row.speedup for row in rows)}"
        figure.supxlabel(level, fontsize=9, color=MUTED)
        _speedup_ticks(grid[0, 0])
        figure.legend(*legend(list(grid[:, 0])), loc="outside upper left", ncols=3, fontsize=9)
        return figure


def sweep_axis(rows: Sequence[Worth]) -> str | None:
    """The numeric axis with most values, if it has at least three."""
    values: dict[str, set[float]] = {}
    for row in rows:
        for axis in row.case.first.case:
            value = _along(row, axis)
            if value is not None:
                values.setdefault(axis, set()).add(value)
    best = max(values, key=lambda axis: len(values[axis]), default=None)
    return best if best is not None and len(values[best]) >= 3 else None


def _along(row: Worth, axis: str) -> float | None:
    """Where a case is on a log axis; None where it has no such positive number."""
    value = row.case.first.case.get(axis)
    return float(value) if isinstance(value, int | float) and value > 0 else None


def _has(rows: Sequence[Worth], arm: str) -> bool:
    return any(row.arm == arm for row in rows)


def _arm_order(row: Worth) -> list[str]:
    return [arm.name for arm in row.case.first.arms]


def legend(panels: Sequence[Axes]) -> tuple[list[Artist], list[str]]:
    """Of all panels together, each label once."""
    found: dict[str, Artist] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return list(found.values()), list(found)


def _sweep_panel(axes: Axes, rows: Sequence[Worth], axis: str, arms: Sequence[str]) -> None:
    for number, arm in enumerate(arms):
        found = [(at, r.speedup) for r in rows if r.arm == arm and (at := _along(r, axis))]
        if found:
            points(axes, sorted(found, key=lambda point: point[0]), number, arm)
    axes.axhline(1, color=MUTED, linewidth=1, linestyle="--")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.grid(visible=True, linewidth=0.6)
    axes.xaxis.set_major_locator(LogLocator(base=2, numticks=6))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: text.quantity(axis, value) or f"{value:.0f}")
    )


def points(axes: Axes, found: Sequence[tuple[float, Estimate]], number: int, label: str) -> None:
    """Estimates with their intervals along an axis, as the series of that number."""
    below = [e.value - (e.value if e.low is None else e.low) for _, e in found]
    above = [(e.value if e.high is None else e.high) - e.value for _, e in found]
    axes.errorbar(
        [x for x, _ in found],
        [e.value for _, e in found],
        yerr=[below, above],
        marker=MARKERS[number % len(MARKERS)],
        markersize=max(3.5, 7 - 1.5 * number),  # equal arms: the one below stays visible
        capsize=2,
        label=short(label, TITLE_LETTERS // 3),
        **line_of(number),
    )


def line_of(number: int) -> Any:
    """The line of the series of that number."""
    return {
        "color": SERIES[number % len(SERIES)],
        "linewidth": max(1.0, 2.6 - 0.6 * number),
    }


def _speedup_ticks(axes: Axes) -> None:
    """Of all panels, which share this axis: a few ratios, however narrow their range is."""
    ticks = ratio_ticks(*axes.get_ylim())
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.6g}×"))


def other_axes(row: Worth, axis: str) -> str:
    """The other axes of a row's case, with their values."""
    others = [(name, str(value)) for name, value in row.case.first.case.items() if name != axis]
    return ", ".join(text.axis_label(name, value) for name, value in others)


def row_figure(rows: int, lines: int = 0) -> tuple[Figure, Axes]:
    """Rows with a label above each, and so many lines of text below that, from the top down."""
    figure = Figure(figsize=(WIDTH_IN, _row_in(lines) * rows + 0.72), layout="constrained")
    axes = figure.subplots()
    prepare_rows(axes, rows)
    return figure, axes


def _row_in(lines: int) -> float:
    return ROW_IN + (BESIDE_IN + LINE_IN * (lines - 1) if lines else 0.0)


def prepare_rows(axes: Axes, rows: int) -> None:
    """Room for rows, each with its text above it; no axis at the left."""
    axes.set_ylim(rows - 0.55, -0.8)
    axes.yaxis.set_major_locator(NullLocator())
    axes.spines["left"].set_visible(False)


def label_row(axes: Axes, position: float, label: str, value: str) -> None:
    """What a row is on the left, its value on the right, above its marks."""
    said = short(label, LABEL_LETTERS - len(value))
    row_text(axes, 0, position - LABEL_OVER, said)
    row_text(axes, 1, position - LABEL_OVER, value, ha="right", weight="bold")


def row_text(axes: Axes, across: float, position: float, words: str, **style: Any) -> None:
    """Words inside of the axes, whose layout need not measure them: that would take long."""
    transform = axes.get_yaxis_transform()
    axes.text(across, position, words, transform=transform, va="bottom", in_layout=False, **style)


def _lines(words: str) -> list[str]:
    """The words in lines as wide as the figure; words of ours are never cut."""
    return wrap(short(words, MOST_LINES * BESIDE_LETTERS), BESIDE_LETTERS)


def short(label: str, length: int) -> str:
    """A text of a record as a label: what is hidden is shown, what is too long is cut."""
    clear = visible(label[: 2 * length])
    return clear if len(clear) <= length and len(label) <= length else f"{clear[: length - 1]}…"


def ratio_axis(axes: Axes, ends: Sequence[float], label: str) -> None:
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
    """1 and values around it: equal factors for wide ranges, even steps for narrow ones."""
    if high / low > 3:
        every = next((one for one in FACTORS if one**MOST_TICKS > high / low), FACTORS[-1])
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
