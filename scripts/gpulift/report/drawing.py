"""A figure for the page: inline SVG in the page's colours, and a text that stands for it."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure

from gpulift.ground.whole import write_whole
from gpulift.report import plots

THEMED = {plots.INK: "var(--ink)", plots.MUTED: "var(--muted)", plots.GRID: "var(--grid)"}
PNG_DPI = 200
PNG_LEVEL = 3  # of zlib: a tenth sooner written than with 6, and up to a quarter larger
# What matplotlib sets for all elements by a style element, which would reach the whole page.
AROUND = 'font-family="system-ui, sans-serif" stroke-linejoin="round" stroke-linecap="butt"'


@dataclass(frozen=True)
class Drawing:
    """A figure with the text that stands for it. It is drawn when it is first asked for."""

    name: str
    alt: str
    draw: Callable[[], Figure]
    inline: bool = True  # False: it is written as files, and no part of the page

    @cached_property
    def figure(self) -> Figure:
        """The figure; its layout is made once, for all formats."""
        with drawing():
            made = self.draw()
            if (layout := made.get_layout_engine()) is not None:
                layout.execute(made)
        made.set_layout_engine(None)  # with an engine, savefig draws twice: once for the layout
        return made

    @cached_property
    def svg(self) -> Markup:
        """For inline use: no header, the page's colours and font, a label for screen readers."""
        drawn = self._drawn("none")
        drawn = drawn[drawn.index("<svg") :]
        drawn = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", drawn, flags=re.DOTALL)
        drawn = re.sub(r"<!--.*?-->|<defs>\s*</defs>", "", drawn, flags=re.DOTALL)
        drawn = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", drawn, count=1)
        drawn = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", drawn, count=1)
        drawn = re.sub(r' id="[\w.]+_\d+"', "", drawn)  # every figure has an axes_1; none is used
        drawn = re.sub(r"<[^>]*>\s*", _terse, drawn)
        for colour, variable in THEMED.items():
            drawn = drawn.replace(colour, variable)
        label = Markup('<svg role="img" aria-label="{}" {}').format(self.alt, Markup(AROUND))
        return Markup(drawn.replace("<svg", label, 1))

    def write_svg(self, file: Path) -> None:
        """For slides and Markdown: letters as outlines, so that it looks the same everywhere."""
        write_whole(self._drawn("path"), file, lasting=False)

    def write_png(self, file: Path) -> None:
        """For slides that take no SVG, on white."""
        out = io.BytesIO()
        with drawing():
            level = {"compress_level": PNG_LEVEL}
            self.figure.savefig(out, format="png", dpi=PNG_DPI, facecolor="white", pil_kwargs=level)
        write_whole(out.getvalue(), file, lasting=False)

    def _drawn(self, letters: str) -> str:
        out = io.StringIO()
        with drawing({"svg.hashsalt": self.name, "svg.fonttype": letters}):
            inline = letters == "none"  # on the page, which has its own ground and label
            about = {"Date": None, "Creator": None} | ({} if inline else {"Title": self.alt})
            self.figure.savefig(out, format="svg", transparent=inline, metadata=about)
        return out.getvalue()


def _terse(tag: re.Match[str]) -> str:
    """A tag in fewer bytes: places to a hundredth of a point, the font from the element around."""
    short = re.sub(r"(\.\d\d)\d+", r"\1", tag[0].rstrip())
    short = re.sub(r" font-family: [^;\"]*;?| transform=\"rotate\(-0 [^\"]*\"", "", short)
    return re.sub(r"\s*\n([A-Za-z]?) ?|(?<=[;:]) ", r"\1", short)


@contextmanager
def drawing(more: Any = None) -> Iterator[None]:
    """Our style and `more` settings; a letter that the font lacks is drawn as a box, silently."""
    with matplotlib.rc_context({**plots.STYLE, **(more or {})}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield
