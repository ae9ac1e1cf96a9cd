"""Which committed records answer for a thing that can be turned on, on which jobs, and which case
would fill a row that has none, or make one surer."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from gpulift.analysis import errata
from gpulift.analysis.bounds import trained_model
from gpulift.analysis.choice import choice_of
from gpulift.analysis.costs import Costs
from gpulift.analysis.doubts import Doubts, doubts_of
from gpulift.analysis.gains import FIRST_MODELS, MODELS, Gain, gain_of, memory_share
from gpulift.analysis.model_records import committed_files
from gpulift.analysis.neighbours import neighbours_at
from gpulift.analysis.reference import Reference, find_reference
from gpulift.analysis.summary import Summary, summarise, worth_over
from gpulift.analysis.things import SITUATIONS, Situation, Source, Thing
from gpulift.analysis.today import Declared, Today, read_today
from gpulift.ground import text
from gpulift.ground.entry import say
from gpulift.records.files import stem_of
from gpulift.records.model import Record
from gpulift.records.read import read_file, runs_of
from gpulift.verdicts.cases import Case

MACHINES = ("nvidia-h100-80gb-hbm3", "nvidia-h200")
FIGURES = "figures"  # below results
LAUNCHES = 3  # that a row asks for
APART = 0.05  # of a ratio: another job is named where its answer differs by more
MOST_JOBS = 3
FIRST = "llama_1b"


@dataclass(frozen=True)
class Known:
    """What is known of the techniques of the page: by technique the cases that stand for it on each
    model, what speaks against them, what techniques are today, the records of all texts, the
    datasheets by model, and which figures there are."""

    cases: Mapping[str, Sequence[Case]]
    doubts: Doubts
    today: Today
    records: Mapping[str, Sequence[Record]]
    references: Mapping[str, Reference]
    figures: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Open:
    """A case that would fill a row or make one surer, and about how many seconds three launches of
    it take by records, whose where they are not its own; None where none was ever measured."""

    technique: str
    case: str
    several: bool
    seconds: float | None
    of: str = ""

    @property
    def command(self) -> str:
        """What measures it."""
        gpus = " --gpus all" if self.several else ""
        return f"./gpulift run '^{self.technique}/{self.case}/' --launches {LAUNCHES}{gpus}"


@dataclass(frozen=True)
class Shown:
    """A gain that answers for a thing, and on which job."""

    gain: Gain
    job: str

    @property
    def place(self) -> int:
        """Of the job: smaller ones stand first."""
        names = list(FIRST_MODELS.values())
        return names.index(self.job) if self.job in names else len(names)

    def differs(self, first: Shown, *, saves: bool) -> bool:
        """Whether its answer is another than the first job's, in memory or in speed."""
        rows = (self.gain.row, first.gain.row)
        shares = (memory_share(one) or 1.0 for one in rows)
        mine, other = shares if saves else (one.speedup.value for one in rows)
        return abs(math.log(mine / other)) > APART


@dataclass(frozen=True)
class Answer:
    """A thing with its gain on each job where the answer differs, the first job's first; or with
    why there is none. `surer` is the case that would fill it or make the first one surer."""

    thing: Thing
    shown: tuple[Shown, ...]
    why_none: str = ""
    surer: Open | None = None

    @property
    def order(self) -> tuple[bool, int, float]:
        """Smaller ones stand first: what the first job has, by its gain."""
        if not self.shown:
            return True, 0, 0.0
        first = self.shown[0]
        return False, min(first.place, 1), -first.gain.row.speedup.value


def known_from(results: Path) -> Known:
    """All of it from committed records. GpuliftError where git has none."""
    return known_of(results, {model: committed_files(results, model) for model in MACHINES})


def known_of(results: Path, files_by_model: Mapping[str, Iterable[Path]]) -> Known:
    """All of it from these files of records; what else is known from the folder of results."""
    techniques = {
        source.technique for one in SITUATIONS for thing in one.things for source in thing.sources
    }
    stems = {one.replace("/", ".") for one in techniques}
    today = read_today(results)
    summaries: list[Summary] = []
    records: dict[str, list[Record]] = {}
    for every in files_by_model.values():
        files = [file for file in every if stem_of(file) in stems]
        for file in files:
            for record in read_file(file).records:
                records.setdefault(record.technique, []).append(record)
        folders = sorted({file.parent for file in files})
        runs = choice_of(results).stand_for(runs_of(folders, stems), together=True)
        summaries += [summarise(run) for run in runs]
    beside = neighbours_at([one.run for one in summaries], say)
    cases: dict[str, list[Case]] = {}
    for summary in summaries:
        for case in summary.cases:
            if case.measured:
                cases.setdefault(case.technique, []).append(case)
    known = errata.read_errata(results / errata.FILE)
    found = ((model, find_reference(results, model)) for model in files_by_model)
    return Known(
        cases,
        doubts_of(summaries, known, today, beside),
        today,
        records,
        {model: one for model, one in found if one},
        frozenset(file.name for file in (results / FIGURES).glob("*.svg")),
    )


def answers(situation: Situation, known: Known) -> list[Answer]:
    """Its things in the order in which to turn them on."""
    found = (answer(thing, known, saves=situation.saves) for thing in situation.things)
    return sorted(found, key=lambda one: one.order)


def answer(thing: Thing, known: Known, *, saves: bool = False) -> Answer:
    """The thing on its jobs: of each what stands first by its evidence, then by its source."""
    every = [
        found for place, source in enumerate(thing.sources) for found in _rows(place, source, known)
    ]
    best: dict[str, Shown] = {}
    for _, shown in sorted(every, key=_evidence):
        if not (shown.gain.grade.withheld or shown.gain.grade.gone):
            best.setdefault(shown.job, shown)
    jobs = sorted(best.values(), key=lambda one: one.place)
    kept = [one for one in jobs if one is jobs[0] or one.differs(jobs[0], saves=saves)][:MOST_JOBS]
    why_none = "" if kept else _why_none([shown.gain for _, shown in every])
    return Answer(thing, tuple(kept), why_none, _surer(thing, kept, known))


def _why_none(found: Sequence[Gain]) -> str:
    """The one reason: nothing, a known error, or another form of the technique."""
    there = [one for one in found if not one.grade.gone]
    if there:
        return f"withheld: {there[0].grade.withheld}"
    return f"an older form alone was measured ({found[0].grade.gone})" if found else "not measured"


def _rows(place: int, source: Source, known: Known) -> Iterator[tuple[int, Shown]]:
    for case in known.cases.get(source.technique, ()):
        if not re.search(source.cases, case.case_id):
            continue
        baseline = next((arm.name for arm in case.first.arms if arm.role == "baseline"), "")
        for arm in source.arms:
            if row := worth_over(case, arm, source.over or baseline):
                yield place, Shown(gain_of(row, known.doubts), source.job or job_of(case))


def _evidence(found: tuple[int, Shown]) -> tuple[object, ...]:
    place, shown = found
    _, qualm, doubted, level, least = shown.gain.order
    grade = shown.gain.grade
    return qualm, doubted, level, not grade.todays, bool(grade.beside), place, least


def job_of(case: Case) -> str:
    """`Llama 1B`, `4 layers of Llama 8B`; of a building block its case in words."""
    model = trained_model(case.first)
    return MODELS.get(model, model) or text.case_label(case.case_id, short=True)


def _surer(thing: Thing, shown: Sequence[Shown], known: Known) -> Open | None:
    """The case that would fill the row: of the one that stands there, else of the first source that
    has a case today; None where what stands there is today's and of three launches."""
    if shown:
        grade, case = shown[0].gain.grade, shown[0].gain.row.case
        if grade.level and grade.todays:
            return None
        return open_case(case.technique, known.today.case_id(case.first), known)
    for source in thing.sources:
        declared = known.today.declared(source.technique)
        ids = cases_today(declared) if declared else []
        if wanted := [one for one in ids if re.search(source.cases, one)]:
            chosen = min(wanted, key=lambda one: FIRST not in one)
            return open_case(source.technique, chosen, known)
    return None


def cases_today(declared: Declared) -> list[str]:
    """The ids of a technique's cases."""
    points = (
        dict(zip(declared.sweep, values, strict=True))
        for values in product(*declared.sweep.values())
    )
    return [found for point in points if (found := declared.case_of(point))]


def open_case(technique: str, case: str, known: Known) -> Open:
    """The case with its seconds on the last of MACHINES, as `run --plan` tells them."""
    every, declared = known.records.get(technique, ()), known.today.declared(technique)
    arms = len(declared.arms) if declared else max((len(one.arms) for one in every), default=0)
    cost = Costs(every, known.today).launch(technique, case, arms, MACHINES[-1])
    several = any(arm.ranks > 1 for one in every for arm in one.arms) or technique.startswith(
        "distributed/"
    )
    if cost is None:
        return Open(technique, case, several, None)
    return Open(technique, case, several, LAUNCHES * cost.launch_s, cost.of)
