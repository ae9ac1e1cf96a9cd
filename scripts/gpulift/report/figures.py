"""Figures of a report: written as files, and as SVG for the page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from gpulift.report.drawing import Drawing

NAME_LETTERS = 80
MADE = ".made-by-report"  # names of the files that a report made, to remove when it makes others


@dataclass(frozen=True)
class Figure:
    """A figure on the page: the name of its files, the text that stands for it, its SVG."""

    name: str
    alt: str
    svg: Markup


def drawn(drawings: Sequence[Drawing], folder: Path) -> dict[str, Figure]:
    """Each by its name, and as an SVG and a PNG file in the folder. Raises OSError where these
    cannot be written."""
    folder.mkdir(parents=True, exist_ok=True)
    clear(folder)
    names = [f"{file_name(drawing.name)}.{end}" for drawing in drawings for end in ("png", "svg")]
    (folder / MADE).write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    return {drawing.name: _written(drawing, folder) for drawing in drawings}


def _written(drawing: Drawing, folder: Path) -> Figure:
    svg = drawing.svg if drawing.inline else Markup("")
    drawing.write_svg(folder / f"{file_name(drawing.name)}.svg")
    drawing.write_png(folder / f"{file_name(drawing.name)}.png")
    return Figure(drawing.name, drawing.alt, svg)


def file_name(name: str) -> str:
    """A figure's name without anything that leads to another folder."""
    return re.sub(r"[^A-Za-z0-9-]+", "-", name)[:NAME_LETTERS].strip("-") or "figure"


def clear(folder: Path) -> None:
    """Removes what an earlier report says that it made here, and nothing else."""
    made = folder / MADE
    try:
        names = made.read_text(encoding="utf-8").split("\n")
    except (FileNotFoundError, UnicodeDecodeError):  # none, or somebody else's
        return
    for name in names:
        stem, _, end = name.rpartition(".")
        if end in ("png", "svg") and stem == file_name(stem):
            (folder / name).unlink(missing_ok=True)
