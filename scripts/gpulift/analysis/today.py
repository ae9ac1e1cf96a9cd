"""What techniques are today: `results/today.json`, which `python -m tools.today` writes from the
manifests of a build, so that a wheel and a fresh clone know it, too.

A technique of nobody's list is a user's own: nothing is known of it, and nothing is wrong with it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

from gpulift.ground.errors import GpuliftError
from gpulift.records.decode import decoded
from gpulift.records.model import Record, canonical
from gpulift.records.values import Integer, Text

FILE = "today.json"
DIGEST_DIGITS = 16
TODAYS = "today's"
GONE = "gone"  # of what the file says of a technique that once was one


@dataclass(frozen=True)
class Declared:
    """What a technique declares, and the digest of all that its arms are made of."""

    arms: tuple[Text, ...]  # the baseline first
    sweep: Mapping[str, tuple[Integer | str, ...]]  # values by axis
    source: Text
    controls: tuple[str, ...] = ()

    def case_of(self, case: Mapping[str, Any]) -> str | None:
        """The id of the case that stands for this one today; None where it is gone. One that lacks
        an axis, which the technique gained later, is that of the axis' first value."""
        values = {axis: case.get(axis, first[0]) for axis, first in self.sweep.items()}
        if not case.keys() <= values.keys():
            return None
        if any(value not in self.sweep[axis] for axis, value in values.items()):
            return None
        return case_id(values)


@dataclass(frozen=True)
class Today:
    """What techniques declare, by id; None of one that is gone."""

    techniques: Mapping[str, Declared | None]

    def declared(self, technique: str) -> Declared | None:
        """None of one that is gone, and of a user's own."""
        return self.techniques.get(technique)

    def case_id(self, record: Record) -> str:
        """The case that the record stands for: today's where there is one, else its own."""
        found = self.declared(record.technique)
        return (found and found.case_of(record.case)) or record.case_id

    def gone(self, record: Record, arms: Iterable[str] = (), baseline: str = "") -> str:
        """What of these is no more: `technique`, `case`, `baseline`, `arm`; empty where all is
        there, and of a user's own technique. A case that `--axis` asked for is nobody's."""
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
        """`today's`, or `before (2026-11-23)`; empty of a user's own technique."""
        if record.technique not in self.techniques:
            return ""
        found = self.declared(record.technique)
        same = found is not None and digest(record.source) == found.source
        return TODAYS if same else f"before ({record.began_at[:10]})"


UNKNOWN = Today({})


def case_id(values: Mapping[str, Any]) -> str:
    """As the engine names a case."""
    return "/".join(f"{axis}:{value}" for axis, value in values.items())


def digest(source: Mapping[str, str]) -> str:
    """Of the hashes of all files of a text, in one; empty where there are none."""
    whole = hashlib.sha256(canonical(dict(source)).encode()).hexdigest()
    return whole[:DIGEST_DIGITS] if source else ""


def read_today(results: Path) -> Today:
    """What the file in a folder of results says; nothing where there is none. Throws GpuliftError,
    with the field, for anything else."""
    file = results / FILE
    if not file.is_file():
        return UNKNOWN
    try:
        content = file.read_bytes()
    except OSError as error:
        raise GpuliftError(f"{file}: cannot be read: {error.strerror}") from None
    found = decoded(content, dict[str, Declared | Literal["gone"]], file.name, closed=True)
    return Today({id: one if isinstance(one, Declared) else None for id, one in found.items()})


def declared_in(manifests: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What manifests declare, as the file has it; of those alone that were built."""
    return {one["id"]: _declared(one) for one in manifests if not one.get("unavailable")}


def _declared(manifest: Mapping[str, Any]) -> dict[str, Any]:
    points = [case["point"] for case in manifest["cases"]]
    sweep = {axis: list(dict.fromkeys(one[axis] for one in points)) for axis in points[0]}
    if [tuple(one.values()) for one in points] != list(product(*sweep.values())):
        raise GpuliftError(f"{manifest['id']}: its cases are not all of its axes' values")
    controls: Sequence[str] = manifest.get("controls", ())
    return {
        "arms": manifest["arms"],
        **({"controls": list(controls)} if controls else {}),
        "sweep": sweep,
        "source": digest(manifest["source"]),
    }


def written(techniques: Mapping[str, Any]) -> str:
    """The content of the file: a line a technique, so that two changes of two merge."""
    lines = (f"{json.dumps(id)}: {json.dumps(techniques[id])}" for id in sorted(techniques))
    return "{\n" + ",\n".join(lines) + "\n}\n"
