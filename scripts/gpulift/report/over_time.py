"""Rows of a history as pictures, each with its points and its levels between changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from gpulift.gate.history import Change, Point
from gpulift.ground.text import visible
from gpulift.ground.whole import write_whole
from gpulift.report import plots, render
from gpulift.report.drawing import Drawing

HEIGHT_IN, SMALL_IN = 3.2, 1.6


@dataclass(frozen=True)
class Level:
    """A row with what is said of it."""

    row: str
    points: Sequence[Point]
    changes: Sequence[Change]
    told: Sequence[str]

    @property
    def is_worse(self) -> bool:
        """Whether its newest level is worse than the one before."""
        return bool(self.changes) and self.changes[-1].worse

    def drawn(self, height_in: float = HEIGHT_IN, title: str = "") -> Drawing:
        """The points in their order, and the medians between changes."""
        alt = f"{self.row}: {len(self.points)} points, {len(self.changes)} changes of level."
        return Drawing("history", visible(alt), lambda: _figure(self, height_in, title))


def write_page(levels: Sequence[Level], file: Path) -> None:
    """A page of small charts, those first that became worse; it needs no other file. Raises
    GpuliftError where it cannot be written."""
    charts = [
        (one, one.drawn(SMALL_IN).svg) for one in sorted(levels, key=lambda one: not one.is_worse)
    ]
    write_whole(render.page({"charts": charts}, "history.html.j2"), file)


def _figure(level: Level, height_in: float, title: str) -> Figure:
    points, changes = level.points, level.changes
    with matplotlib.rc_context(plots.STYLE):
        figure = Figure(figsize=(plots.WIDTH_IN, height_in), layout="constrained")
        axes = figure.subplots()
        places = np.arange(len(points))
        values = [point.value for point in points]
        axes.plot(places, values, "o", color=plots.BLUE, markersize=4)
        ends = [0, *(change.place for change in changes), len(points)]
        for first, last in pairwise(ends):
            middle = float(np.median(values[first:last]))
            axes.plot([first, last - 1], [middle, middle], color=plots.INK, linewidth=1.2)
        for change in changes:
            colour = plots.VERMILLION if change.worse else plots.GREEN
            axes.axvline(change.place - 0.5, color=colour, linewidth=1, linestyle="--")
        axes.set_xticks(
            [0, len(points) - 1], [visible(one.at[:10]) for one in (points[0], points[-1])]
        )
        kind = f"{title}: {points[-1].kind}" if title else points[-1].kind
        axes.set_title(visible(kind), fontsize="small", loc="left")
        return figure
