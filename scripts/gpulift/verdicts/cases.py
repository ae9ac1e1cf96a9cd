"""The launches of a case, together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from gpulift.ground.estimate import Estimate
from gpulift.records.model import Arm, Record
from gpulift.verdicts import stats

TECHNIQUE = "technique"  # the kind of record that says what a technique is worth


@dataclass(frozen=True)
class Case:
    """The launches of one case of one technique."""

    technique: str
    case_id: str
    records: tuple[Record, ...]

    @cached_property
    def first(self) -> Record:
        """The record whose texts stand for the case: a measured one where there is one."""
        return next((r for r in self.records if r.outcome == "ok"), self.records[0])

    @cached_property
    def measured(self) -> tuple[Record, ...]:
        """The launches with results."""
        return tuple(record for record in self.records if record.outcome == "ok")

    @property
    def lacks_launches(self) -> bool:
        """Whether there are fewer than were planned: the run was left before its end."""
        return len(self.records) < max(one.launches for one in self.records)

    @cached_property
    def arms(self) -> Mapping[str, tuple[Arm, ...]]:
        """By name, what the launches measured of each arm that any of them measured."""
        names = dict.fromkeys(arm.name for record in self.measured for arm in record.arms)
        found = {name: tuple(stats.measured_arms(self.measured, name)) for name in names}
        return {name: launches for name, launches in found.items() if launches}

    @cached_property
    def times_s(self) -> Mapping[str, Estimate]:
        """Seconds of a step of each arm that was measured."""
        return {name: stats.time_over(launches) for name, launches in self.arms.items()}

    def record_ids(self, *arms: str) -> tuple[str, ...]:
        """Citations of the launches in which all these arms were measured."""
        return tuple(
            record.citation
            for record in self.measured
            if all(stats.measured_arms([record], name) for name in arms)
        )


def group_cases(records: Sequence[Record], kind: str) -> list[Case]:
    """The records of one kind, case by case (a duet: arm by arm), launches in order."""
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in sorted(records, key=lambda r: (r.technique, r.launch)):
        if record.kind == kind:
            groups.setdefault(record.subject, []).append(record)
    return [Case(found[0].technique, found[0].case_id, tuple(found)) for found in groups.values()]
