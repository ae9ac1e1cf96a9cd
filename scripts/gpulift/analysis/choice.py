"""Which record stands for a case: one order for all that shows, judges or exports records.

First what is today's (technique, case, baseline and arms), then what no erratum withholds, then
what rests on more launches, up to three, of the same text on cards of the same model in however
many runs, then the newest. What is not today's is shown where there is nothing else, and marked
(`analysis.grade`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpulift.analysis.errata import FILE, Erratum, known_errors, read_errata, without_wrong
from gpulift.analysis.today import UNKNOWN, Today, read_today
from gpulift.engine import machine, quick
from gpulift.records.model import Record, Role
from gpulift.records.read import Run, read_results, runs_of
from gpulift.verdicts.cases import TECHNIQUE
from gpulift.verdicts.stats import measured_arms

ENOUGH_LAUNCHES, ENOUGH_CARDS = 3, 2
ADDING_UP = ("job/ladder", quick.JOB, "input/pipeline")  # each arm has all settings before it
WHOLE, PART, NONE = 2, 1, 0  # of a record's arms that are today's
Order = tuple[bool, int, bool, int, str]
Found = tuple[Run, list[Record]]  # the launches of a case in a run


@dataclass(frozen=True)
class Evidence:
    """Launches, on how many cards (none of what no GPU took part in), and on how many of them three
    launches or more."""

    launches: int
    cards: int
    thrice: int

    @property
    def level(self) -> int:
        """2: three launches on each of two cards; 1: three launches; 0: fewer."""
        if self.launches < ENOUGH_LAUNCHES:
            return 0
        return 2 if self.thrice >= ENOUGH_CARDS else 1


def evidence_of(records: Iterable[Record]) -> Evidence:
    """Of measured records of one text."""
    counts = Counter(one.context.gpu.card if one.context.gpu else None for one in records)
    thrice = sum(count >= ENOUGH_LAUNCHES for count in counts.values())
    return Evidence(sum(counts.values()), len(counts.keys() - {None}), thrice)


@dataclass(frozen=True)
class Choice:
    """What techniques are today, and what is wrong in records."""

    today: Today = UNKNOWN
    errata: tuple[Erratum, ...] = ()

    def stand_for(self, runs: Sequence[Run], *, together: bool = False) -> list[Run]:
        """Each case of these runs of one machine in the run that stands for it, of equals in the
        first, against today's baseline where it was measured. Arms of today that the run left out
        are taken of the next one that has them. One run alone stands as it was recorded. What
        errata hide is not there. `together`: a case that was left before its end has the launches
        that it lacks of other runs, of whatever card of the model."""
        runs = [replace(run, records=tuple(map(self._right, run.records))) for run in runs]
        if len(runs) < 2:
            return runs
        runs = [replace(run, records=tuple(map(self._against_todays, run.records))) for run in runs]
        kept: dict[Path, list[Record]] = {run.folder: [] for run in runs}
        for found in self._by_case(runs).values():
            (best, records), *others = self._ranked(found)
            kept[best.folder] += records
            if together:
                kept[best.folder] += self._lacking(records, [more for _, more in others])
            missing = self._arms(records[0]) - _measured(records)
            for run, others_records in others:
                if (named := missing & _measured(others_records)) and self._todays(others_records):
                    kept[run.folder] += [restricted(one, named) for one in others_records]
                    missing -= named
        return [replace(run, records=tuple(kept[run.folder])) for run in runs if kept[run.folder]]

    def best(self, runs: Sequence[Run]) -> Run:
        """Of runs that have one case alone, the one that stands for it."""
        return self._ranked([(run, list(run.records)) for run in runs])[0][0]

    def _right(self, record: Record) -> Record:
        return without_wrong(record, self.errata)

    def _against_todays(self, record: Record) -> Record:
        declared = self.today.declared(record.technique)
        if declared is None or record.ceiling or record.kind != TECHNIQUE:
            return record
        baseline = declared.arms[0]
        if _baseline(record) == baseline or baseline not in _measured([record]):
            return record
        roles: dict[bool, Role] = {True: "baseline", False: "technique"}
        arms = (replace(arm, role=roles[arm.name == baseline]) for arm in record.arms)
        return replace(record, arms=tuple(arms), controls=declared.controls)

    def order(self, records: Sequence[Record], arms: Sequence[str] = ()) -> Order:
        """Larger ones come first, of records of one case and one text in any number of runs: by all
        their arms, or by `arms` alone."""
        measured = [one for one in records if one.outcome == "ok"]
        return (
            bool(measured),
            self._todays(records, arms),
            not self.withheld(measured, arms),
            min(len(measured), ENOUGH_LAUNCHES),  # more of an older text tell a reader no more
            max(one.began_at for one in records),
        )

    def withheld(self, records: Sequence[Record], arms: Sequence[str] = ()) -> bool:
        """Whether an erratum withholds the ratio of these arms; without any, the ratios of all."""
        known = known_errors(records, [one for one in self.errata if not one.leads])
        if arms or not known:
            return any(one.withholds(arms) for one in known)
        baseline = _baseline(records[0])
        others = _measured(records) - {baseline}
        own = {one for one in others if not records[0].is_control(one)} or others
        return all(any(one.withholds((arm, baseline)) for one in known) for arm in own)

    def _todays(self, records: Sequence[Record], arms: Sequence[str] = ()) -> int:
        first = next((one for one in records if one.outcome == "ok"), records[0])
        if arms:
            return NONE if self.today.gone(first, arms) else WHOLE
        others = _measured(records) - {"" if first.ceiling else _baseline(first)}
        stay = {arm for arm in others if not self.today.gone(first, (arm,), _baseline(first))}
        if not stay:  # a baseline alone tells nothing
            return NONE
        return WHOLE if stay == others else PART

    def _lacking(
        self, records: Sequence[Record], others: Iterable[Sequence[Record]]
    ) -> list[Record]:
        """Launches of others in place of those that were not made."""
        names = _measured(records)
        alike = (more for more in others if self._go_together(records, more))
        found = [restricted(one, names) for more in alike for one in more]
        return found[: max(0, records[0].launches - len(records))]

    def _go_together(self, records: Sequence[Record], others: Sequence[Record]) -> bool:
        """Whether they are launches of one technique and text, measured and built alike, with all
        arms of the first, and none is there twice. A roof is one card's."""
        one, other = records[0], others[0]
        return (
            (one.kind, one.ceiling, one.case_id) == (TECHNIQUE, False, other.case_id)
            and self.today.text_key(one) == self.today.text_key(other)
            and _measured(records) <= _measured(others)
            and _conditions(one) == _conditions(other)
            and not {each.id for each in records} & {each.id for each in others}
            and not any(each.of_times for each in known_errors([*records, *others], self.errata))
        )

    def _arms(self, record: Record) -> set[str]:
        """Those that the case has today, of which each may be of another run: none of roofs and of
        ladders."""
        declared = self.today.declared(record.technique)
        apart = not record.ceiling and record.technique not in ADDING_UP
        return set(declared.arms) if declared and apart else set()

    def _by_case(self, runs: Sequence[Run]) -> dict[tuple[str, ...], list[Found]]:
        found: dict[tuple[str, ...], dict[tuple[Path, str], Found]] = {}
        for run in runs:
            for one in run.records:
                case = (one.kind, one.technique, self.today.case_id(one), one.duet_arm)
                in_run = found.setdefault(case, {})
                in_run.setdefault((run.folder, one.case_id), (run, []))[1].append(one)
        return {case: list(in_run.values()) for case, in_run in found.items()}

    def _ranked(self, found: Sequence[Found]) -> list[Found]:
        """Best first: by all runs of its text, then by the run itself."""
        if len(found) == 1:
            return list(found)
        texts: dict[object, list[Record]] = {}
        keys = [
            (self.today.text_key(records[0]), _baseline(records[0]), self.withheld(records))
            for _, records in found
        ]
        for key, (_, records) in zip(keys, found, strict=True):
            texts.setdefault(key, []).extend(records)
        orders = {key: self.order(records) for key, records in texts.items()}
        places = [(orders[key], self.order(one[1])) for key, one in zip(keys, found, strict=True)]
        ranks = sorted(range(len(found)), key=places.__getitem__, reverse=True)
        return [found[rank] for rank in ranks]


NOTHING_KNOWN = Choice()


def choice_of(results: Path) -> Choice:
    """By what a folder of results says. Throws GpuliftError for a file that cannot be read."""
    return Choice(read_today(results), read_errata(results / FILE))


def read_cases(paths: Iterable[Path]) -> list[Run]:
    """The runs that the paths name, as `read_results` has them; a folder above run folders stands
    for each case of each machine in the run that stands for it."""
    return read_results(paths, choose=choice_of(machine.results_folder()).stand_for)


def cases_of(
    results: Path, folders: Sequence[Path], stems: Collection[str] | None = None
) -> list[Run]:
    """The same of one machine's run folders, below a folder of results; of some techniques alone
    where the `stems` of their files are given."""
    return choice_of(results).stand_for(runs_of(folders, stems))


def restricted(record: Record, names: Iterable[str]) -> Record:
    """The record with these arms and its baseline alone."""
    wanted = {*names, _baseline(record)}
    stay = [index for index, arm in enumerate(record.arms) if arm.name in wanted]
    place = {old: new for new, old in enumerate(stay)}
    order = record.order and replace(
        record.order,
        blocks=tuple(tuple(place[i] for i in row if i in place) for row in record.order.blocks),
        allocation=tuple(place[i] for i in record.order.allocation if i in place),
    )
    return replace(record, arms=tuple(record.arms[index] for index in stay), order=order)


def _conditions(record: Record) -> tuple[object, ...]:
    """What launches that stand together have alike, but for the card and its host."""
    context = record.context
    options = {key: value for key, value in context.options.items() if key != "launches"}
    build = context.build.type, context.build.foreign_flags
    libraries = context.versions, context.driver, context.environment
    return _baseline(record), record.method, options, build, libraries


def _measured(records: Iterable[Record]) -> set[str]:
    """The names of the arms that any of them measured."""
    found = (record for record in records if record.outcome == "ok")
    return {arm.name for one in found for arm in one.arms if measured_arms([one], arm.name)}


def _baseline(record: Record) -> str:
    return next((arm.name for arm in record.arms if arm.role == "baseline"), "")
