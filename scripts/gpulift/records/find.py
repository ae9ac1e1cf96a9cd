"""Finds the record that an id names among all record files below some folders."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from gpulift.ground.errors import GpuliftError
from gpulift.ground.text import visible
from gpulift.records.files import record_files_below
from gpulift.records.ids import KnownIds
from gpulift.records.model import ID_DIGITS, Record, slug
from gpulift.records.read import read_file

LEAST_DIGITS = 4
MOST_NAMED = 8
WANTED = re.compile(rf"(?:gpulift:)?(?:([a-z0-9-]+)/)?([0-9a-f]{{{LEAST_DIGITS},{ID_DIGITS}}})")

Say = Callable[[str], None]


def find_record(wanted: str, places: Sequence[Path], say: Say) -> Record:
    """The record of `gpulift:<gpu>/<id>`, of a bare id, or of the only one that begins so.

    Raises GpuliftError where it is no id, unknown or ambiguous. A file that cannot be read is said,
    and the others are searched.
    """
    named = WANTED.fullmatch(wanted.strip().lower())
    if named is None:
        raise GpuliftError(
            f"{wanted!r} is no record's id: give gpulift:<gpu>/<id>, or of the id's {ID_DIGITS}"
            f" hexadecimal digits the first {LEAST_DIGITS} or more"
        )
    gpu, digits = named.groups()
    found, helps = dict[str, Record](), "; --results DIR adds one"
    for record in _records(places, digits, say):
        if record.id.startswith(digits) and gpu in (None, record.context.slug):
            found.setdefault(record.id, record)
            if record.id == digits:
                return record
        elif record.id.startswith(digits):
            helps = f"; {record.citation} has it"
    if not found:
        below = ", ".join(visible(str(place)) for place in places)
        raise GpuliftError(f"no record below {below} has the id {wanted!r}{helps}")
    if len(found) > 1:
        raise GpuliftError(_ambiguous(wanted, list(found.values())))
    return next(iter(found.values()))


def _ambiguous(wanted: str, found: Sequence[Record]) -> str:
    names = sorted(record.citation for record in found)
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    listed = ", ".join(names[:MOST_NAMED])
    return f"{wanted!r} begins the ids of {listed}{more}: give more digits"


def _records(places: Iterable[Path], digits: str, say: Say) -> Iterator[Record]:
    """Those of all files that may have such an id."""
    known = KnownIds()
    try:
        for file in _files_of(places):
            ids = known.of(file)
            if ids is None or any(id.startswith(digits) for id in ids):
                yield from _read(file, known, say)
    finally:
        known.save()


def _read(file: Path, known: KnownIds, say: Say) -> Sequence[Record]:
    """What is wrong with the file is said in each call, so its ids are not kept."""
    try:
        content = read_file(file)
    except GpuliftError as error:
        say(f"warning: left out: {visible(str(error))}")
        return ()
    for warning in content.warnings:
        say(f"warning: {visible(warning)}")
    if not content.warnings:
        known.keep(file, [record.id for record in content.records])
    return content.records


def _files_of(places: Iterable[Path]) -> Iterator[Path]:
    for place in places:
        files = _files(place)
        if not files:
            raise GpuliftError(
                f"{visible(str(place))}: there are no records (*.jsonl, *.jsonl.zst) in it"
            )
        yield from files


def _files(place: Path) -> list[Path]:
    try:
        if not place.exists():
            raise GpuliftError(f"{visible(str(place))}: there is no such file or folder")
        return [place] if place.is_file() else record_files_below(place)
    except OSError as error:  # a name that is too long, or a folder that may not be read
        raise GpuliftError(f"{visible(str(place))}: cannot be read: {error.strerror}") from None


def model_named(name: str, known: Sequence[str]) -> str | None:
    """The known model that a user means: the one of that name, or else the one that has all of it
    as whole words: an L4 is no L40S. Throws GpuliftError where there are several."""
    wanted = name if name in known else slug(name)  # which takes `cpu` for a word of a name
    if wanted in known:
        return wanted
    fitting = [model for model in dict.fromkeys(known) if f"-{wanted}-" in f"-{model}-"]
    if len(fitting) > 1:
        raise GpuliftError(f"{name} is a part of {', '.join(fitting)}: name one")
    return fitting[0] if fitting else None


def require_model(name: str, known: Sequence[str], none: str) -> str:
    """The known model that a user means; throws GpuliftError, which says that there is none of it
    (as in `there are no records`), where there is none."""
    model = model_named(name, known)
    if model is None:
        raise GpuliftError(
            f"{none} of {name or repr(name)}; known are {', '.join(known) or 'none'}"
        )
    return model
