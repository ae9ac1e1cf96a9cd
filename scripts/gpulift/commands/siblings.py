"""`gpulift qualify --among`: cards or nodes that were measured apart, against each other."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import typer

from gpulift.analysis.choice import choice_of
from gpulift.analysis.machine import rows, saved
from gpulift.analysis.machine.siblings import compare_siblings, judge_siblings
from gpulift.commands import shared as commands
from gpulift.ground.errors import GpuliftError
from gpulift.records.read import Run, read_run, run_folders
from gpulift.records.together import was_crowded
from gpulift.verdicts import table


def among(results: Sequence[Path], as_json: bool) -> int:
    """Names the card that is an outlier, of three or more of one model, or the node without one;
    the exit code.

    Of a card with several runs each case is of the one that stands for it, and of all cards only
    what did the same work is compared. Runs in which all cards of a machine were busy at once are
    left out.
    """
    folders = list(folders_of(results))
    if not folders:
        raise GpuliftError("--among: name RESULTS, folders of what was measured")
    choice = choice_of(commands.results_folder())
    summaries = {
        name: commands.summary_of(_as_one(choice.stand_for(runs)))
        for name, runs in _by_card(folders).items()
    }
    found = compare_siblings(summaries, today=choice.today)
    judged = judge_siblings(found)
    made = rows.table("siblings", found.title, judged)
    if as_json:
        commands.print_json(saved.siblings_document(found, judged))
    else:
        typer.echo(table.FORMS["lines"](made))
    return made.exit_code


def _by_card(folders: Sequence[Path]) -> dict[str, list[Run]]:
    """The runs of each card; of a machine without a GPU each run, by its place."""
    above = Path(os.path.commonpath([folder.parent for folder in folders]))
    found: dict[str, list[Run]] = {}
    for folder in folders:
        run = read_run(folder)
        name = run.records[0].context.card or str(folder.relative_to(above))
        found.setdefault(name, []).append(run)
    return found


def _as_one(runs: Sequence[Run]) -> Run:
    records = tuple(record for run in runs for record in run.records)
    return replace(
        runs[0], records=records, warnings=tuple(w for run in runs for w in run.warnings)
    )


def folders_of(results: Sequence[Path]) -> Iterator[Path]:
    for path in results:
        if not path.is_dir():
            raise GpuliftError(f"{path}: is no folder of results")
        found = [folder.resolve() for folder in run_folders(path) if not was_crowded(folder)]
        if not found:
            raise GpuliftError(f"{path}: there are no records of a GPU that was busy alone in it")
        yield from found
