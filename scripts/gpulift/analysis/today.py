"""What techniques are today: `results/today.json`, which `python -m tools.today` writes from the
manifests of a build, so that a wheel and a fresh clone know it, too; and which text of a technique
a record is of.

A text is named by a digest of `source`, the hashes of what the arms do. Records below schema 1.14
hash files whole, comments and all: what their text comes to by the rule of today says
`results/texts.json`, which `python -m tools.texts` writes from git.

A technique that the file does not name is a user's own: nothing is known of it, and nothing of it
is gone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from gpulift.ground.errors import GpuliftError
from gpulift.records.decode import decoded
from gpulift.records.model import HASHES_MEANING, TELLS_ALL, Record
from gpulift.records.values import Integer, Text

FILE = "today.json"
TEXTS = "texts.json"
DIGITS = 12  # of a digest
TODAYS = "today's"
GONE: Literal["gone"] = "gone"  # in place of what a technique declared that once was one

Texts = dict[str, dict[str, Text]]  # digests by commit and technique


@dataclass(frozen=True)
class Declared:
    """What a technique declares, and the digest of its text."""

    arms: tuple[Text, ...]  # the baseline first
    sweep: Mapping[str, tuple[Integer | str, ...]]  # values by axis
    text: Text = ""
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
    """What techniques declare, by id, and of which texts earlier records are."""

    techniques: Mapping[str, Declared | Literal["gone"]] = field(default_factory=dict)
    texts: Texts = field(default_factory=dict)

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
        """`today's` where the arms did what they do today, or `before (2026-11-23)`; empty of a
        user's own technique."""
        if record.technique not in self.techniques:
            return ""
        found = self.declared(record.technique)
        is_todays = found is not None and self.digest(record) == found.text != ""
        return TODAYS if is_todays else f"before ({record.began_at[:10]})"

    def digest(self, record: Record) -> str:
        """The name of its text by the rule of today; empty where it is not known."""
        if record.minor >= HASHES_MEANING:
            return digest_of(record.source) if record.source else ""
        build = record.context.build
        return self.texts.get(build.commit, {}).get(record.technique, "") if not build.dirty else ""

    def same_text(self, one: Record, other: Record) -> bool:
        """Whether their arms did the same, as far as is known: records of before schema 1.7 tell
        of no text, and are no other one's for that."""
        return one.source == other.source or self.digest(one) == self.digest(other) != ""

    def text_key(self, record: Record) -> object:
        """Equal for launches that did the same: of those that do not tell all, for those of the
        same files or else of the same commit."""
        digest = self.digest(record) if record.minor >= TELLS_ALL else ""
        return digest or frozenset(record.source.items()) or record.context.build.commit


def digest_of(source: Mapping[str, str]) -> str:
    """The name of a text, from the hashes of its files."""
    told = json.dumps(source, sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:DIGITS]


UNKNOWN = Today()


def read_today(results: Path) -> Today:
    """What the files in a folder of results say; nothing where there is none. Throws GpuliftError,
    with the key, for anything else."""
    content = _content(results / FILE)
    if content is None:
        return UNKNOWN
    known = decoded(content, Today, FILE, closed=True)
    texts = _content(results / TEXTS)
    return known if texts is None else replace(known, texts=decoded(texts, Texts, TEXTS))


def _content(file: Path) -> bytes | None:
    if not file.is_file():
        return None
    try:
        return file.read_bytes()
    except OSError as error:
        raise GpuliftError(f"{file}: cannot be read: {error.strerror}") from None
