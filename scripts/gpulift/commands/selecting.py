"""Arguments of what measures and of `list`, which imports little: what is measured, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpulift.engine import machine, techniques
from gpulift.ground.arguments import named
from gpulift.ground.entry import say

if TYPE_CHECKING:
    from gpulift.engine import measuring


def _technique_ids(incomplete: str) -> list[str]:
    return [id for id in machine.technique_ids() if id.startswith(incomplete)]


SameFilter = Annotated[
    str | None,
    typer.Argument(metavar="[FILTER]", help="The same as --filter.", autocompletion=_technique_ids),
]
Techniques = Annotated[
    list[Path] | None,
    typer.Option(
        parser=named,
        metavar="DIR",
        help="Folder of techniques of your own; may be repeated. Else those of GPULIFT_TECHNIQUES.",
    ),
]
Axes = Annotated[
    list[str] | None,
    typer.Option(
        "--axis",
        metavar="NAME=VALUE,...",
        help="Values of an axis in place of the sweep's; may be repeated. Any whole number or shape"
        " (4096x1024); of other words the sweep's. Techniques without the axis are left out. Cases"
        " that no sweep has are no results to commit.",
    ),
]
Ranks = Annotated[
    str | None,
    typer.Option(
        metavar="given",
        help="Measure on the ranks that srun, torchrun or mpirun started, of which this is one.",
    ),
]


def prepared(named: Sequence[Path] | None) -> tuple[Path, ...]:
    """The modules of these folders of techniques, or else of those of the environment."""
    folders = techniques.asked(named)
    return tuple(techniques.prepare(folders, say)) if folders else ()


def on_ranks(
    word: str, options: measuring.Options, measure: Callable[[measuring.Options], int]
) -> int:
    """What a rank does that a launcher started: the exit code."""
    from gpulift.ranks import given  # which most runs do without

    given.require_given(word, options)
    return given.run(options, measure, say)
