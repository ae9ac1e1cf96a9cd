"""A row of a history as a picture: its points, and its levels between changes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from gpulift.gate.history import Change, Point
from gpulift.report import plots
from gpulift.report.drawing import Drawing

HEIGHT_IN = 3.2


def draw(row: str, points: Sequence[Point], changes: Sequence[Change], file: Path) -> None:
    """Writes an SVG. Raises GpuliftError where it cannot be written."""
    alt = f"{row}: {len(points)} points, {len(changes)} changes of level."
    Drawing("history", alt, lambda: _figure(row, points, changes)).write_svg(file)


def _figure(row: str, points: Sequence[Point], changes: Sequence[Change]) -> Figure:
    with matplotlib.rc_context(plots.STYLE):
        figure = Figure(figsize=(plots.WIDTH_IN, HEIGHT_IN), layout="constrained")
        axes = figure.subplots()
        places = np.arange(len(points))
        values = [point.value for point in points]
        axes.plot(places, values, "o", color=plots.BLUE, markersize=4)
        ends = [0, *(change.place for change in changes), len(points)]
        for first, last in pairwise(ends):
            level = float(np.median(values[first:last]))
            axes.plot([first, last - 1], [level, level], color=plots.INK, linewidth=1.2)
        for change in changes:
            colour = plots.VERMILLION if change.worse else plots.GREEN
            axes.axvline(change.place - 0.5, color=colour, linewidth=1, linestyle="--")
        axes.set_xticks([0, len(points) - 1], [points[0].at[:10], points[-1].at[:10]])
        better = "more" if points[-1].higher else "less"
        axes.set_ylabel(f"{points[-1].unit or 'value'} ({better} is better)")
        axes.set_title(row, fontsize="small", loc="left")
        return figure
