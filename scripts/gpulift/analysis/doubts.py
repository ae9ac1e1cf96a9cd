"""What is known to speak against records: errors, and runs that were left unfinished."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpulift.analysis.errata import Erratum, errata_of
from gpulift.analysis.summary import Summary, Worth
from gpulift.records.model import Record


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

    def known(self, records: Iterable[Record]) -> list[Erratum]:
        """The errata of these records."""
        return [self.errata[number - 1] for number in self.errors(records)]

    def doubted(self, row: Worth, folder: Path) -> bool:
        """Whether this row of a run stands behind others."""
        disturbed = bool(row.disturbed)
        return disturbed or self.wrong_times(row.case.measured) or folder in self.unfinished

    def wrong_times(self, records: Iterable[Record]) -> bool:
        """Whether an erratum doubts the times of any of these records."""
        return any(one.of_times for one in self.known(records))


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
        frozenset(one.run.folder for one in summaries if one.unfinished),
    )
