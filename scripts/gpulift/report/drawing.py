"""A figure for the page: inline SVG in the page's colours, and a text that stands for it."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass

import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure

from gpulift.report import plots

THEMED = {plots.INK: "var(--ink)", plots.MUTED: "var(--muted)", plots.GRID: "var(--grid)"}
FONT = "system-ui, sans-serif"


@dataclass(frozen=True)
class Drawing:
    """A figure with the text that stands for it."""

    name: str
    alt: str
    figure: Figure

    @property
    def svg(self) -> Markup:
        """For inline use: no header, the page's colours and font, a label for screen readers."""
        out = io.StringIO()
        with matplotlib.rc_context({**plots.STYLE, "svg.hashsalt": self.name}):
            self.figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
        drawn = out.getvalue()
        drawn = drawn[drawn.index("<svg") :]
        drawn = re.sub(r"<metadata>.*?</metadata>", "", drawn, flags=re.DOTALL)
        drawn = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", drawn, count=1)
        drawn = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", drawn, count=1)
        drawn = re.sub(r"'DejaVu Sans'[^;\"]*", FONT, drawn)
        for colour, variable in THEMED.items():
            drawn = drawn.replace(colour, variable)
        label = Markup('<svg role="img" aria-label="{}"').format(self.alt)
        return Markup(drawn.replace("<svg", label, 1))
