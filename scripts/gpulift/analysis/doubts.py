"""What is known to speak against records: errors, what else ran, and what is no more today."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gpulift.analysis.errata import Erratum, errata_of
from gpulift.analysis.summary import BUSY_CORES, Summary, Worth, others_cores
from gpulift.analysis.today import UNKNOWN, Today
from gpulift.records.model import Record


@dataclass(frozen=True)
class Doubts:
    """The errata that records of a report have, in all and by a record's id, what techniques are
    today, and by a record's id what ran on other cards of its host (`analysis.neighbours`)."""

    errata: tuple[Erratum, ...] = ()
    had: Mapping[str, tuple[Erratum, ...]] = field(default_factory=dict)
    today: Today = UNKNOWN
    neighbours: Mapping[str, int] = field(default_factory=dict)  # how many cards, by a record's id

    def __bool__(self) -> bool:
        return bool(self.errata)

    def known(self, records: Iterable[Record]) -> list[Erratum]:
        """The errata of these records, newest first."""
        had = {erratum for one in records for erratum in self.had.get(one.id, ())}
        return sorted(had, key=lambda one: -one.number)

    def doubted(self, row: Worth) -> bool:
        """Whether this row stands behind others: its pace was others', an erratum doubts the times
        of its arms, or launches of its case are missing."""
        wrong = self.wrong_times(row.case.measured, (row.arm, row.baseline))
        return bool(row.disturbed) or wrong or row.case.lacks_launches

    def wrong_times(self, records: Iterable[Record], arms: Iterable[str]) -> bool:
        """Whether an erratum doubts the times of any of these arms in any of these records."""
        return any(one.of_times and one.concerns(arms) for one in self.known(records))

    def withheld(self, records: Iterable[Record], arms: Sequence[str]) -> str:
        """What is wrong with the ratio of these very arms, by the first erratum that withholds it;
        empty where none does."""
        return next((one.short for one in self.known(records) if one.withholds(arms)), "")

    def beside_of(self, records: Sequence[Record]) -> str:
        """`beside runs on 3 other cards, others kept 18.4 of 64 cores busy`: most of any of these
        records; empty where nothing else ran that is known."""
        cards = max((self.neighbours.get(one.id, 0) for one in records), default=0)
        runs = "a run on another card" if cards == 1 else f"runs on {cards} other cards"
        busiest = max(records, key=others_cores)
        cores, of = others_cores(busiest), busiest.context.host.cores
        kept = f"others kept {cores:.1f}{f' of {of}' if of else ''} cores busy"
        return ", ".join([f"beside {runs}"] * (cards > 0) + [kept] * (cores >= BUSY_CORES))


NO_DOUBTS = Doubts()


def doubts_of(
    summaries: Sequence[Summary],
    errata: Sequence[Erratum],
    today: Today = UNKNOWN,
    neighbours: Mapping[str, int] | None = None,
) -> Doubts:
    """What is known of the records of these runs, and of those that their models' figures rest
    on."""
    records = {record.id: record for one in summaries for record in _known_to(one)}
    had = {id: found for id, record in records.items() if (found := errata_of(record, errata))}
    seen = set().union(*had.values())
    shown = tuple(one for one in errata if one in seen)
    return Doubts(shown, had, today, neighbours or {})


def _known_to(summary: Summary) -> Iterable[Record]:
    yield from summary.run.records
    for row in summary.worths:
        if row.of_model:
            yield from row.of_model.records
