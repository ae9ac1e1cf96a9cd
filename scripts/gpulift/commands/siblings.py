"""`gpulift siblings`: cards or nodes that were measured apart, against each other."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer

from gpulift.analysis.machine import saved, tables
from gpulift.analysis.machine.siblings import compare_siblings, judge_siblings
from gpulift.commands import shared as commands
from gpulift.commands.qualify import exit_code_of
from gpulift.ground import terminal
from gpulift.ground.arguments import Json, Results, Wide
from gpulift.ground.errors import GpuliftError
from gpulift.records.read import read_run, run_folders
from gpulift.records.together import was_crowded


def siblings(results: Results, wide: Wide = False, as_json: Json = False) -> None:
    """Name the card or node that stands out, of three or more of one model.

    Each run folder that the paths hold is one of them, named by its place; runs in which all cards
    of a machine were busy at once are left out.
    """
    folders = list(_folders(results))
    above = Path(os.path.commonpath([folder.parent for folder in folders]))
    names = {str(folder.relative_to(above)): folder for folder in folders}
    found = compare_siblings(
        {name: commands.summary_of(read_run(folder)) for name, folder in names.items()}
    )
    judged = judge_siblings(found)
    if as_json:
        commands.print_json(saved.siblings_document(found, judged))
    else:
        screen = terminal.console(wide=wide)
        screen.print(tables.verdicts(judged, every=True))
        screen.print(tables.siblings_table(found))
    raise typer.Exit(exit_code_of(judged))


def _folders(results: Sequence[Path]) -> Iterator[Path]:
    for path in results:
        if not path.is_dir():
            raise GpuliftError(f"{path}: is no folder of results")
        found = [folder.resolve() for folder in run_folders(path) if not was_crowded(folder)]
        if not found:
            raise GpuliftError(f"{path}: there are no records of a GPU that was busy alone in it")
        yield from found
