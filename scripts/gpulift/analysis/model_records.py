"""Finds the records of whole models, of all their runs, for figures that are about the model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gpulift.ground.errors import USAGE, GpuliftError
from gpulift.ground.programs import finished, text_of
from gpulift.ground.text import visible
from gpulift.records.files import record_files_below, size_of, stem_of
from gpulift.records.model import Record
from gpulift.records.read import read_results
from gpulift.records.together import was_crowded
from gpulift.verdicts.cases import TECHNIQUE

if TYPE_CHECKING:
    from gpulift.analysis.summary import Summary

GIT_LIMIT_S = 300


def committed_files(results: Path, model: str) -> dict[Path, str]:
    """The record files of a model that git has below a folder of results, with the hash of each.

    GpuliftError where there is none.
    """
    command = ["git", "ls-files", "-s", "-z", "--", f"{model}/*.jsonl", f"{model}/*.jsonl.zst"]
    listed = finished(command, GIT_LIMIT_S, results)
    if listed.returncode:
        said = text_of(listed.stderr).strip()
        raise GpuliftError(f"{results}: git lists no files here: {said}", USAGE)
    lines = (line.partition("\t") for line in text_of(listed.stdout).split("\0") if line)
    found = {results / name: facts.split()[1] for facts, _, name in lines}
    if not found:
        raise GpuliftError(f"{results}: there are no committed records of {model}", USAGE)
    return dict(sorted(found.items()))


def records_beside(
    summaries: Iterable[Summary], places: Iterable[Path], say: Callable[[str], None]
) -> list[Record]:
    """Those of the models of these runs, of techniques and ceilings that they measured."""
    models: dict[str, set[str]] = {}
    for one in summaries:
        of_model = models.setdefault(one.run.records[0].context.slug, set())
        of_model.update(row.technique for row in one.worths)
        of_model.update(roof.case.technique for roof in one.roofs)
    techniques = set().union(*models.values())
    found = records_of_models(files_at(places), models, techniques, say)
    return [record for record in found if record.technique in models[record.context.slug]]


def files_at(places: Iterable[Path]) -> list[Path]:
    """Record files that the places are, or that are below them."""
    each = ([place] if place.is_file() else record_files_below(place) for place in places)
    return [file for found in each for file in found]


def records_of_models(
    files: Iterable[Path],
    models: Collection[str],
    techniques: Collection[str],
    say: Callable[[str], None],
) -> list[Record]:
    """All records of these techniques on these models in the files.

    Left out: runs in which several GPUs were busy at once, and files that cannot be read, which is
    said.
    """
    stems = {technique.replace("/", ".") for technique in techniques}
    named = {file.resolve(): file for file in files if stem_of(file) in stems}.values()
    crowded = {folder for folder in {file.parent for file in named} if was_crowded(folder)}
    wanted = [file for file in named if file.parent not in crowded and size_of(file)]
    return [record for record in _read(wanted, say) if record.context.slug in models]


def _read(files: Iterable[Path], say: Callable[[str], None]) -> Iterator[Record]:
    for file in files:
        try:
            (run,) = read_results([file])
        except GpuliftError as error:
            say(f"warning: left out: {visible(str(error))}")
            continue
        for record in run.records:
            if record.kind == TECHNIQUE and not record.synthetic:
                yield record
