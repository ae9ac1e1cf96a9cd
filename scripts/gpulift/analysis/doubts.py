"""What speaks against leading with a row: a known error, one launch, an unfinished run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpulift.analysis.summary import Summary, Worth
from gpulift.citing.errata import Erratum, errata_of
from gpulift.records.model import Record
from gpulift.records.together import state_of
from gpulift.runs import RUNNING


@dataclass(frozen=True)
class Doubts:
    """The errata that records of a report have, numbered from 1, and the runs left unfinished."""

    errata: tuple[Erratum, ...] = ()
    numbers: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # by a record's id
    unfinished: frozenset[Path] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.errata)

    def errors(self, records: Iterable[Record]) -> list[int]:
        """The numbers of the errata of these records."""
        return sorted({number for one in records for number in self.numbers.get(one.id, ())})

    def bars(self, row: Worth, folder: Path) -> bool:
        """Whether a table must not begin with this row of a run."""
        wrong = self.wrong_times(row.case.measured)
        return wrong or row.speedup.one_launch or folder in self.unfinished

    def wrong_times(self, records: Iterable[Record]) -> bool:
        """Whether an erratum doubts the times of any of these records."""
        return any(self.errata[number - 1].of_times for number in self.errors(records))


NO_DOUBTS = Doubts()


def doubts_of(summaries: Sequence[Summary], errata: Sequence[Erratum]) -> Doubts:
    """What is known of the records of these runs."""
    records = [record for one in summaries for record in one.run.records]
    had = {record.id: found for record in records if (found := errata_of(record, errata))}
    seen = set().union(*had.values())
    shown = [one for one in errata if one in seen]
    return Doubts(
        tuple(shown),
        {id: tuple(shown.index(one) + 1 for one in found) for id, found in had.items()},
        frozenset(
            one.run.folder for one in summaries if state_of(one.run.folder).get("state") == RUNNING
        ),
    )
