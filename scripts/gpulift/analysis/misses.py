"""Why predictions were missed, as far as it is known: `results/misses.toml`.

A miss beyond 1.3 needs an entry. What caused it was measured apart from the step, or is reckoned
from what was measured, or is not known yet: then the entry says just that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from gpulift.ground import toml
from gpulift.ground.errors import PATTERN_ERRORS
from gpulift.records.decode import converted
from gpulift.records.model import Record
from gpulift.records.values import Text, among

FILE = "misses.toml"
MEASURED = "measured apart"
RECKONED = "reckoned"
UNKNOWN = "not known yet"
KINDS = (MEASURED, RECKONED, UNKNOWN)
PATTERNS = ("arms", "cases", "machines")


@dataclass(frozen=True)
class Reason:
    """Of a technique's misses those whose arm, case and machine match; an empty pattern is of all.

    `why` may be left out of what is not known. Throws ValueError for a pattern that is none.
    """

    technique: Text
    kind: Annotated[str, among(*KINDS)]
    why: str = ""
    arms: str = ""
    cases: str = ""
    machines: str = ""

    def __post_init__(self) -> None:
        if not self.why and self.kind != UNKNOWN:
            raise ValueError(f"what is {self.kind} says why")
        for key in PATTERNS:
            try:
                re.compile(getattr(self, key))
            except PATTERN_ERRORS as error:
                raise ValueError(f"{key} is no regular expression: {error}") from None

    def is_of(self, record: Record, arm: str) -> bool:
        """Whether it says why a prediction of the arm was missed in this record."""
        return (
            record.technique == self.technique
            and (not self.arms or bool(re.fullmatch(self.arms, arm)))
            and bool(re.search(self.cases, record.case_id))
            and bool(re.search(self.machines, record.context.slug))
        )

    @property
    def told(self) -> str:
        """`measured apart: ...`, or that it is not known yet."""
        return f"{self.kind}: {self.why}" if self.why else self.kind


def read_reasons(file: Path) -> tuple[Reason, ...]:
    """All of a file; none where there is none. Throws GpuliftError, with the field."""
    if not file.is_file():
        return ()
    entries = toml.parsed(file).get("misses", [])
    return converted(entries, tuple[Reason, ...], file.name, "misses", closed=True)


def unused(reasons: Iterable[Reason], misses: Iterable[tuple[Record, str]]) -> list[Reason]:
    """Those that no miss, a record and an arm, needs: each takes the first that is of it."""
    reasons = tuple(reasons)
    taken = {
        next((at for at, one in enumerate(reasons) if one.is_of(record, arm)), None)
        for record, arm in misses
    }
    return [one for at, one in enumerate(reasons) if at not in taken]
