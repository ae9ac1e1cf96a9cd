"""What techniques are today: `results/today.json`, which `python -m tools.today` writes from the
manifests of a build and the files of a checkout, so that a wheel and a fresh clone know it, too.

A technique that the file does not name is a user's own: nothing is known of it, and nothing of it
is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from gpulift.ground.errors import GpuliftError
from gpulift.records.decode import decoded
from gpulift.records.model import TELLS_ALL, Record
from gpulift.records.values import Integer, Text

FILE = "today.json"
DIGITS = 12  # of a hash
TODAYS = "today's"
GONE: Literal["gone"] = "gone"  # in place of what a technique declared that once was one

Files = Mapping[str, Text]  # the start of the hash of each, by the name that records give it


@dataclass(frozen=True)
class Declared:
    """What a technique declares, and the hashes of its own files."""

    arms: tuple[Text, ...]  # the baseline first
    sweep: Mapping[str, tuple[Integer | str, ...]]  # values by axis
    files: Files = field(default_factory=dict)
    controls: tuple[str, ...] = ()

    def case_of(self, case: Mapping[str, Any]) -> str | None:
        """The id of the case that stands for this one today; None where it is gone. One that lacks
        an axis, which the technique gained later, is that of the axis' first value."""
        values = {axis: case.get(axis, first[0]) for axis, first in self.sweep.items()}
        if not case.keys() <= values.keys():
            return None
        if any(value not in self.sweep[axis] for axis, value in values.items()):
            return None
        return "/".join(f"{axis}:{value}" for axis, value in values.items())


@dataclass(frozen=True)
class Today:
    """What techniques declare, by id, and the files that several may share."""

    techniques: Mapping[str, Declared | Literal["gone"]] = field(default_factory=dict)
    files: Files = field(default_factory=dict)

    def declared(self, technique: str) -> Declared | None:
        """None of one that is gone, and of a user's own."""
        found = self.techniques.get(technique)
        return found if isinstance(found, Declared) else None

    def case_id(self, record: Record) -> str:
        """The case that the record stands for: today's where there is one, else its own."""
        found = self.declared(record.technique)
        return (found and found.case_of(record.case)) or record.case_id

    def gone(self, record: Record, arms: Iterable[str] = (), baseline: str = "") -> str:
        """What of these is no more: `technique`, `case`, `baseline`, `arm`; empty where all is
        there, of a user's own technique, and of a case that `--axis` asked for."""
        if record.technique not in self.techniques or record.off_sweep:
            return ""
        found = self.declared(record.technique)
        if found is None:
            return "technique"
        if found.case_of(record.case) is None:
            return "case"
        if baseline and baseline != found.arms[0]:
            return "baseline"
        return "arm" if any(arm not in found.arms for arm in arms) else ""

    def text(self, record: Record) -> str:
        """`today's` where all files that the record names are, or `before (2026-11-23)`; empty of a
        user's own technique."""
        if record.technique not in self.techniques:
            return ""
        return TODAYS if self._is_todays(record) else f"before ({record.began_at[:10]})"

    def _is_todays(self, record: Record) -> bool:
        found = self.declared(record.technique)
        if found is None or record.minor < TELLS_ALL or not record.source:
            return False
        known = {**self.files, **found.files}
        return all(known.get(name) == one[:DIGITS] for name, one in record.source.items())


UNKNOWN = Today()


def read_today(results: Path) -> Today:
    """What the file in a folder of results says; nothing where there is none. Throws GpuliftError,
    with the key, for anything else."""
    file = results / FILE
    if not file.is_file():
        return UNKNOWN
    try:
        content = file.read_bytes()
    except OSError as error:
        raise GpuliftError(f"{file}: cannot be read: {error.strerror}") from None
    return decoded(content, Today, file.name, closed=True)
