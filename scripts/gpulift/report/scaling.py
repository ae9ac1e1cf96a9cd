"""What several GPUs are worth: how a step scales over them, and what of its exchange shows.

Each figure is of all runs of a machine: two and four GPUs are often measured in runs of their own.
Scaling is of arms of a rank per GPU against a baseline of one, in cases whose axis `gpus` says how
many; exposed communication is of arms that tell how long their step is without the exchange.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from statistics import median

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from gpulift.analysis import arms
from gpulift.analysis.arms import EXPOSED_S, WITHOUT_S, tells
from gpulift.analysis.facts import Facts
from gpulift.analysis.summary import Worth
from gpulift.ground import text
from gpulift.ground.estimate import Estimate
from gpulift.records.model import Arm
from gpulift.report import escaping, plots
from gpulift.report.drawing import Drawing
from gpulift.report.machine_views import MachineView
from gpulift.report.plots import RateRow
from gpulift.verdicts.cases import Case

GPUS = "gpus"
MOST_PANELS = 8
MOST_ROWS = 32
COLUMNS = 2
TITLE_LETTERS = 25
PANEL_IN = 1.75
ROOM_IN = 0.65  # beside the last point, for its value
NEXT = 0.09  # of a panel's height: what a value takes
LEAST = 0.25  # of the baseline: a marker below stands at the edge, so that others keep apart


def drawings(machines: Sequence[MachineView]) -> list[Drawing]:
    """The scaling of each machine, then the exposed communication of each."""
    first = [view for view in machines if view.main]
    return [one for kind in (_scaling, _exposed) for view in first for one in kind(view)]


def scales(row: Worth) -> bool:
    """Whether an arm on as many GPUs as its case says is held against one process, by items."""
    ranks, alone = (row.case.arms[name][0].ranks for name in (row.arm, row.baseline))
    counted = all(map(_has_items, (row.facts, row.baseline_facts)))
    return counted and ranks > alone == 1 and row.case.first.case.get(GPUS) == ranks


def _has_items(facts: Facts) -> bool:
    return facts.cost is not None and facts.cost.items > 0


def _ranks(row: Worth) -> int:
    return row.case.arms[row.arm][0].ranks


def _scaling(view: MachineView) -> Iterator[Drawing]:
    """A figure for each technique, a panel for each value of the other axes."""
    techniques: dict[str, dict[str, list[Worth]]] = {}
    for row in _in_order(view):
        panels = techniques.setdefault(row.technique, {})
        panels.setdefault(_others(row.case), []).append(row)
    for number, (technique, panels) in enumerate(techniques.items()):
        shown = dict(islice(panels.items(), MOST_PANELS))
        said = "; ".join(_panel_words(title, rows) for title, rows in shown.items())
        baseline = escaping.brief(next(iter(shown.values()))[0].baseline)
        alt = f"{_where(technique, view)}, items a second against {baseline} by GPUs: {said}."
        alt += _left_out(len(panels) - len(shown), "panel")
        yield Drawing(f"scaling-{view.number}-{number}", alt, partial(draw_scaling, shown))


def _in_order(view: MachineView) -> list[Worth]:
    """The rows that scale as their cases and arms came, the fewest GPUs first; of what several
    runs have, the first run's."""
    rows: dict[tuple[str, str, str], Worth] = {}
    for run in view.group:
        found = {row.key: row for row in run.summary.worths if scales(row)}
        for case in run.summary.cases:
            for key in ((case.technique, case.case_id, arm.name) for arm in case.first.arms):
                if key in found:
                    rows.setdefault(key, found[key])
    return sorted(rows.values(), key=_ranks)


def _others(case: Case) -> str:
    """The values of the axes beside the number of GPUs: `gpt2, weak`."""
    axes = (axis for axis in case.case_id.split("/") if not axis.startswith(f"{GPUS}:"))
    return text.case_label("/".join(axes), short=True)


def _panel_words(title: str, rows: Sequence[Worth]) -> str:
    """`gpt2, weak: ddp 1.89× on 2 GPUs (0.94 of n), 3.70× on 4 GPUs (0.92 of n)`."""
    said = (
        f"{escaping.brief(arm)} {', '.join(map(_point_words, members))}"
        for arm, members in _by_arm(rows).items()
    )
    return f"{escaping.brief(title)}: {', '.join(said)}" if title else ", ".join(said)


def _point_words(row: Worth) -> str:
    gain, ranks = row.speedup.value, _ranks(row)
    return f"{text.ratio(gain)} on {ranks} GPUs ({gain / ranks:.2f} of n)"


def _by_arm(rows: Iterable[Worth]) -> dict[str, list[Worth]]:
    found: dict[str, list[Worth]] = {}
    for row in rows:
        found.setdefault(row.arm, []).append(row)
    return found


def draw_scaling(panels: Mapping[str, Sequence[Worth]]) -> Figure:
    """Gains by the number of GPUs on log axes, each arm from the baseline at 1 on, beside a line
    of perfect scaling."""
    rows = [row for members in panels.values() for row in members]
    arms = list(_by_arm(rows))
    counts = sorted({1, *map(_ranks, rows)})
    columns = min(len(panels), COLUMNS)
    lines = math.ceil(len(panels) / columns)
    with matplotlib.rc_context(plots.STYLE):
        panel_in = PANEL_IN if len(panels) > 1 else 1.3 * PANEL_IN
        height = 0.4 + panel_in * lines + 0.2 * math.ceil((len(arms) + 2) / 3)
        figure = Figure(figsize=(plots.WIDTH_IN, height), layout="constrained")
        grid = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).flatten()
        _scaling_axes(grid[0], counts, rows, columns)
        for axes, (title, members) in zip(grid, panels.items(), strict=False):
            ends = [1, counts[-1]]
            axes.plot(ends, ends, "--", color=plots.INK, linewidth=1, zorder=3, label="perfect")
            axes.plot(1, 1, "o", color=plots.INK, label=plots.short(rows[0].baseline, 20))
            _scaling_panel(axes, _by_arm(members), arms)
            axes.set_title(plots.short(title, TITLE_LETTERS), fontsize=10, loc="left")
            axes.tick_params(labelbottom=True)
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        figure.supylabel("items/s against one GPU", fontsize=10)
        level = (
            f"number of GPUs; bars: 95 % intervals, {plots.launches(row.speedup for row in rows)}"
        )
        figure.supxlabel(level, fontsize=9, color=plots.MUTED)
        handles, labels = plots.legend(list(grid[: len(panels)]))
        figure.legend(handles, labels, loc="outside upper left", ncols=3, fontsize=9)
        return figure


def _scaling_axes(axes: Axes, counts: Sequence[int], rows: Sequence[Worth], columns: int) -> None:
    """Of all panels, which share them: ticks at the numbers of GPUs that are there."""
    gains = [row.speedup.value for row in rows]
    room = ROOM_IN * columns / (plots.WIDTH_IN - 1)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xlim(counts[-1] ** -0.1, counts[-1] ** (1 / (1 - room)))
    axes.set_ylim(max(LEAST, min(1, *gains)) / 1.2, max(counts[-1], *gains) * 1.3)
    axes.xaxis.set_major_locator(FixedLocator(counts, nbins=plots.MOST_TICKS))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
    axes.yaxis.set_major_locator(LogLocator(base=2, numticks=plots.MOST_TICKS))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}×"))
    for one in (axes.xaxis, axes.yaxis):
        one.set_minor_locator(NullLocator())


def _scaling_panel(axes: Axes, found: Mapping[str, Sequence[Worth]], arms: Sequence[str]) -> None:
    axes.grid(visible=True, linewidth=0.6)
    for number, arm in enumerate(arms):
        points = [(float(_ranks(row)), _at_edge(row.speedup)) for row in found.get(arm, ())]
        if points:
            at, gain = points[0]
            axes.plot([1, at], [1, gain.value], **plots.line_of(number))
            plots.points(axes, points, number, arm)
    low, high = axes.get_ylim()
    place = 0.0
    for row in sorted((rows[-1] for rows in found.values()), key=lambda row: row.speedup.value):
        drawn = _at_edge(row.speedup).value
        place = max(place * (high / low) ** NEXT, drawn)
        below = "↓ " if row.speedup.value < drawn else ""
        axes.annotate(
            f"{below}{text.ratio(row.speedup.value)}",
            (_ranks(row), place),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )


def _at_edge(gain: Estimate) -> Estimate:
    return Estimate(LEAST) if gain.value < LEAST else gain


@dataclass(frozen=True)
class _Exposed:
    """What of an arm's steps nothing hides, over its launches."""

    label: str
    median_s: float
    shares: Sequence[float]

    @property
    def words(self) -> str:
        """`1.30 ms, 3.2 %`."""
        seconds = arms.metric(EXPOSED_S, self.median_s) if self.median_s else "0 s"
        return f"{seconds}, {text.percent(median(self.shares))}"

    @property
    def row(self) -> RateRow:
        """In percent, from the lowest launch to the highest where there are several."""
        count = len(self.shares)
        low, high = (min(self.shares), max(self.shares)) if count > 1 else (None, None)
        estimate = Estimate(median(self.shares), low, high, count).scaled(100)
        return RateRow(self.label, estimate, self.words)


def _exposed(view: MachineView) -> Iterator[Drawing]:
    """A figure for each technique, case by case."""
    techniques: dict[str, list[_Exposed]] = {}
    withheld: Counter[str] = Counter()
    cases: dict[tuple[str, str], Case] = {}
    for case in (case for run in view.group for case in run.summary.cases):
        cases.setdefault((case.technique, case.case_id), case)
    for case in cases.values():
        for name, launches in case.arms.items():
            if found := _exposed_of(case, name):
                techniques.setdefault(case.technique, []).append(found)
            elif any(EXPOSED_S in one.metrics and not tells(one, EXPOSED_S) for one in launches):
                withheld[case.technique] += 1
    for number, (technique, every) in enumerate(techniques.items()):
        shown = every[:MOST_ROWS]
        said = "; ".join(f"{escaping.brief(one.label)} {one.words}" for one in shown)
        alt = (
            f"{_where(technique, view)}, exposed communication (median launch), of a step: {said}."
        )
        alt += _left_out(len(every) - len(shown), "arm")
        if withheld[technique]:
            alt += f" Withheld of {withheld[technique]} more, whose parts miss the timed step."
        draw = partial(draw_exposed, [one.row for one in shown])
        yield Drawing(f"exposed-{view.number}-{number}", alt, draw)


def _exposed_of(case: Case, name: str) -> _Exposed | None:
    """Of the launches in which it fits the windows; None where it does in none."""
    launches = [one for one in case.arms[name] if one.metrics.get(WITHOUT_S, 0.0) > 0]
    known = [one for one in launches if tells(one, EXPOSED_S)]
    if not known:
        return None
    label = f"{text.case_label(case.case_id, short=True)}: {name}"
    exposed_s = median(one.metrics[EXPOSED_S] for one in known)
    return _Exposed(label, exposed_s, [*map(_share, known)])


def _share(arm: Arm) -> float:
    exposed_s = arm.metrics[EXPOSED_S]
    return exposed_s / (exposed_s + arm.metrics[WITHOUT_S])


def draw_exposed(rows: Sequence[RateRow]) -> Figure:
    """Shares as bars from 0 and lines from the lowest launch to the highest; below 0 the step took
    less with the exchange."""
    with matplotlib.rc_context(plots.STYLE):
        figure, axes = plots.row_figure(len(rows))
        for position, row in enumerate(rows):
            axes.plot([0, 0], [position - 0.16, position + 0.16], color=plots.INK, linewidth=1.6)
            axes.barh(position, row.estimate.value, height=0.32, color=plots.BLUE, linewidth=0)
            low, high = row.estimate.low, row.estimate.high
            if low is not None and high is not None:
                axes.plot([low, high], [position] * 2, color=plots.INK, linewidth=1.6)
            plots.label_row(axes, position, row.label, row.value)
        ends = [end for one in rows for end in (one.estimate.low, one.estimate.high)]
        values = [*(row.estimate.value for row in rows), *(end for end in ends if end is not None)]
        axes.set_xlim(1.02 * min(0.0, *values), 1.02 * max(1.0, *values))
        counted = plots.launches(row.estimate for row in rows)
        if any(row.estimate.launches > 1 for row in rows):
            counted = f"bars: median, lines: lowest to highest launch, {counted}"
        axes.set_xlabel(f"exposed communication, % of the step (less is better)\n{counted}")
        return figure


def _left_out(count: int, what: str) -> str:
    return f" {count} more {what}{'s' if count > 1 else ''}: see the table." if count > 0 else ""


def _where(technique: str, view: MachineView) -> str:
    return f"{escaping.brief(technique)} on {escaping.brief(view.summary.run.machine)}"
