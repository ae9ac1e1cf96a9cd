"""A machine's answer as the page and report.md show it: made from summaries and their checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

from markupsafe import Markup

from gpulift.analysis import conditions, gains
from gpulift.analysis.analyse import JudgedRun, Machine, by_machine
from gpulift.analysis.gains import FIRST_MODELS, AnswerLine, Gain, StepLine, StepLists, Theme
from gpulift.analysis.ladder import Ladder
from gpulift.analysis.machine import verdict
from gpulift.analysis.machine.checks import basis
from gpulift.analysis.machine.results import FAIL, INCONCLUSIVE, PASS, SKIPPED, CheckResult
from gpulift.analysis.summary import Summary, Worth
from gpulift.ground import text
from gpulift.ground.estimate import Estimate
from gpulift.records.model import IMPORT, Record
from gpulift.report import gaps, marks, roofline, tables
from gpulift.report.marks import Scale
from gpulift.verdicts import stats
from gpulift.verdicts.cases import Case, group_cases

SYNTHETIC = "synthetic test data"
SAVES = "What saves memory and costs time"
GAINS_FIRST = "The largest gain is first"
SAVINGS_FIRST = "What saves most memory is first"


@dataclass(frozen=True)
class ImportedRow:
    """A benchmark of another tool, and the time of its step."""

    case: Case
    arm: str
    time_s: Estimate

    @property
    def time(self) -> str:
        """`1.23 ms [1.22 ms, 1.24 ms]`; no interval where there is none."""
        ends = [text.seconds(end) for end in (self.time_s.low, self.time_s.high) if end]
        value = text.seconds(self.time_s.value)
        return f"{value} [{', '.join(ends)}]" if ends else value


@dataclass(frozen=True)
class StepTable:
    """One of the lists of techniques in whole training steps, with the columns that it fills."""

    anchor: str
    title: str
    order: str
    lines: tuple[StepLine, ...]

    @property
    def models(self) -> list[tuple[int, str]]:
        """Places and names of the models of which any line has something."""
        names = enumerate(FIRST_MODELS.values())
        return [(at, name) for at, name in names if any(line.first[at] for line in self.lines)]

    @property
    def others(self) -> bool:
        """Whether any line has something of another model."""
        return any(line.other for line in self.lines)


@dataclass(frozen=True)
class MachineView:
    """A machine's answer, its checks and its figures."""

    number: int
    anchor: str
    summary: Summary
    results: tuple[CheckResult, ...]
    answer: verdict.Answer
    marks: tuple[str, ...]
    added: tuple[str, ...] = ()  # techniques that no run of the machine before it has
    known: frozenset[str] = frozenset()  # checks that the machine's first run answers for
    further: tuple[MachineView, ...] = ()  # the other runs of its machine, in the first run's view
    main: bool = True  # the first run of its machine: its lines are those of all of them
    lists: StepLists = field(default_factory=StepLists)  # whole training steps
    themes: tuple[Theme, ...] = ()  # building blocks
    trains: tuple[str, ...] = ()  # how fast it trains whole models, and is fed
    gains: tuple[Gain, ...] = ()  # of all its runs, what these lines are taken from
    withheld: tuple[Gain, ...] = ()  # and what errata call wrong, which is in none of them
    ladders: tuple[Ladder, ...] = ()  # settings one on top of the other, a model each

    @property
    def steps(self) -> tuple[StepLine, ...]:
        """Whole training steps, in the order of the first screen."""
        return self.lists.every

    @property
    def step_tables(self) -> list[StepTable]:
        """What is faster, and what saves memory and costs time, where there is any."""
        made = (
            StepTable(f"steps-{self.number}", "What is faster", GAINS_FIRST, self.lists.faster),
            StepTable(f"savers-{self.number}", SAVES, SAVINGS_FIRST, self.lists.savers),
        )
        return [one for one in made if one.lines]

    @property
    def group(self) -> tuple[MachineView, ...]:
        """It and the other runs of its machine."""
        return (self, *self.further)

    @cached_property
    def lines(self) -> tuple[AnswerLine, ...]:
        """The building blocks of all themes."""
        return tuple(line for theme in self.themes for line in theme.lines)

    @cached_property
    def scale(self) -> Scale:
        """The axis on which the ends of building blocks are drawn."""
        return marks.scale([row.speedup for line in self.lines for row in line.ends])

    def plot(self, line: AnswerLine) -> Markup:
        """A line's ends on that axis."""
        return marks.draw([row.speedup for row in line.ends], self.scale)

    @property
    def shown_themes(self) -> list[Theme]:
        """With the lines that show an effect, where there are any."""
        kept = ((one.name, tuple(x for x in one.lines if x.matters)) for one in self.themes)
        return [Theme(name, lines) for name, lines in kept if lines]

    @cached_property
    def leading(self) -> dict[str, Gain]:
        """Of each technique the one figure that speaks for it."""
        return gains.leading(self.gains)

    @property
    def runs(self) -> int:
        """How many runs its lines come from."""
        return len({line.leading.run for line in self.lines})

    @property
    def again(self) -> list[str]:
        """Techniques of the run that a run of its machine before it has, too."""
        each = dict.fromkeys(row.technique for row in self.summary.worths)
        return [one for one in each if one not in self.added]

    @property
    def judged(self) -> bool:
        """Whether its checks say anything of how fast the machine is, or that anything failed."""
        decided = [one for one in self.results if one.verdict != SKIPPED]
        return any(one.verdict == FAIL or one.id.startswith(verdict.SPEED) for one in decided)

    @property
    def has_ceilings(self) -> bool:
        """Whether it holds roofs or smallest pieces of work."""
        return bool(self.summary.roofs or self.summary.unit_costs)

    @property
    def bare(self) -> list[MachineView]:
        """Further runs without ceilings of which there are checks to show."""
        return [one for one in self.further if one.notable and not one.has_ceilings]

    @property
    def forest(self) -> str:
        """Names of figures; the figure is there where there is something to draw."""
        return f"techniques-{self.number}"

    @property
    def roofline(self) -> str:
        """Of the cases below the measured ceilings."""
        return f"roofline-{self.number}"

    @property
    def bars(self) -> str:
        """Of the ceilings as shares of the datasheet."""
        return f"roofs-{self.number}"

    @cached_property
    def unplaced(self) -> list[str]:
        """Techniques that the roofline has no place for."""
        return roofline.unplaced(self.summary)

    @property
    def repeats(self) -> bool:
        """Whether some of them repeat work for equal bits, which a check judges and no roof."""
        records = self.summary.run.records
        return any(one.judges_integrity for one in records if one.technique in self.unplaced)

    @property
    def failed(self) -> list[CheckResult]:
        """The checks that failed."""
        return [one for one in self.results if one.verdict == FAIL]

    @property
    def notable(self) -> list[CheckResult]:
        """What failed, then roofs and health that have a verdict; the rest is counted."""
        order = (FAIL, INCONCLUSIVE, PASS)
        found = [one for one in self.results if one.verdict == FAIL or _decides(one)]
        return sorted(found, key=lambda one: order.index(one.verdict))

    @property
    def untold(self) -> list[CheckResult]:
        """Step times and costs that could not be told from their limit."""
        return [r for r in self.results if r.verdict == INCONCLUSIVE and not _decides(r)]

    @property
    def energy(self) -> bool:
        """Whether the joules of a line are known."""
        return any(line.best.energy_j is not None for line in self.lines)

    @property
    def problems(self) -> list[tuple[tuple[str, str, str, str], str]]:
        """What has no result, failures first, equal reasons together."""
        one = self.summary
        return tables.group_problems([*one.broken, *one.skipped, *one.beside])

    @property
    def gaps(self) -> tuple[str, ...]:
        """What the records do not hold, though the cases were measured."""
        return tuple(gaps.gaps(self.summary, self.results, self.known))

    @property
    def cases(self) -> list[Case]:
        """All cases in the order of their records, techniques and duets alike."""
        records = self.summary.run.records
        kinds = dict.fromkeys(record.kind for record in records)
        return [case for kind in kinds for case in group_cases(records, kind)]

    @property
    def methods(self) -> list[str]:
        """Versions of the method in its records."""
        return sorted({record.method for record in self.summary.run.records})

    @property
    def schemas(self) -> list[str]:
        """Versions of the schema in its records."""
        return sorted({record.schema for record in self.summary.run.records})

    @cached_property
    def versions(self) -> Mapping[str, str]:
        """Of the libraries that its arms ran through, each case having its own."""
        found: dict[str, set[str]] = {}
        for record in self.summary.run.records:
            for library, version in record.context.versions.items():
                found.setdefault(library, set()).add(version)
        return {library: " and ".join(sorted(found[library])) for library in sorted(found)}

    @cached_property
    def disks(self) -> tuple[str, ...]:
        """Of the folders in which its arms kept files."""
        contexts = (record.context for record in self.summary.run.records)
        return tuple(dict.fromkeys(filter(None, map(conditions.disk, contexts))))

    @cached_property
    def imported(self) -> tuple[ImportedRow, ...]:
        """The times that another tool measured."""
        cases = group_cases(self.summary.run.records, IMPORT)
        named = ((case, arm.name) for case in cases for arm in case.first.arms)
        rows = ((case, arm, stats.step_time(case.measured, arm)) for case, arm in named)
        return tuple(ImportedRow(case, arm, time) for case, arm, time in rows if time)

    @property
    def nothing(self) -> str:
        """Why there is no comparison of techniques."""
        kinds = {record.kind for record in self.summary.run.records}
        if kinds == {"duet"}:
            return "No technique was measured: these records hold two builds against each other."
        if kinds == {IMPORT}:
            return "No technique was measured: another tool made these, and nothing judges them."
        return "No technique was measured."

    @property
    def kept_back(self) -> list[tuple[str, list[str], list[Record]]]:
        """What errata withhold of techniques that have no other figure: the reason, the techniques,
        and the records that have the error."""
        found: dict[str, list[Worth]] = {}
        for one in self.withheld:
            if one.row.technique not in self.leading:
                found.setdefault(one.grade.withheld, []).append(one.row)
        return [
            (
                reason,
                list(dict.fromkeys(row.technique for row in rows)),
                [record for row in rows for record in row.case.measured],
            )
            for reason, rows in found.items()
        ]

    def withheld_of(self, technique: str) -> str:
        """Why the technique has no figure; empty where it has one."""
        reasons = (one.grade.withheld for one in self.withheld if one.row.technique == technique)
        return "" if technique in self.leading else next(reasons, "")

    @property
    def quiet(self) -> list[str]:
        """Techniques in which no difference is shown."""
        every: list[StepLine | AnswerLine] = [*self.lists.rest, *self.lines]
        return list(dict.fromkeys(line.technique for line in every if not line.matters))

    @property
    def slower(self) -> list[str]:
        """Techniques that cost time in whole steps, and save no memory."""
        return [line.technique for line in self.lists.rest if line.matters]


def machine_views(
    runs: Sequence[JudgedRun],
    machines: Mapping[str, Machine],
    techniques: Mapping[str, str],
) -> list[MachineView]:
    """Each run with its checks; the first of a machine speaks for all of its runs.

    `techniques` has the anchor of each.
    """
    groups: dict[str, list[MachineView]] = {}
    of_all = {one.summary.run.model: one for one in by_machine(runs)}
    own: dict[str, frozenset[str]] = {}  # checks of each first run
    for number, run in enumerate(runs):
        before = groups.setdefault(model := run.summary.run.model, [])
        known = own.setdefault(model, frozenset(one.id for one in run.checks))
        if not before:
            run = of_all[model]
            known = frozenset(one.id for one in run.checks) - known
        before.append(_machine_view(run, number, before, known))
    joined = (_joined(group, machines[name], techniques) for name, group in groups.items())
    return sorted(chain.from_iterable(joined), key=lambda view: view.number)


def _machine_view(
    run: JudgedRun, number: int, before: Sequence[MachineView], known: frozenset[str]
) -> MachineView:
    summary = run.summary
    seen = {technique for one in before for technique in technique_ids([one.summary])}
    synthetic = [SYNTHETIC] if any(one.synthetic for one in summary.run.records) else []
    return MachineView(
        number=number,
        anchor=f"m{number}",
        summary=summary,
        results=run.checks,
        answer=verdict.answer(
            run.checks, basis(summary), "" if before else verdict.load_of(summary)
        ),
        marks=(*synthetic, *summary.marks),
        added=tuple(one for one in technique_ids([summary]) if one not in seen),
        known=known,
        main=not before,
    )


def _joined(
    group: Sequence[MachineView], machine: Machine, techniques: Mapping[str, str]
) -> Iterator[MachineView]:
    """The first run gets the lines of all of the machine's runs."""
    main, *further = group
    yield replace(
        main,
        lists=gains.step_lists(machine.gains, techniques),
        themes=tuple(gains.themes(machine.gains, techniques)),
        further=tuple(further),
        trains=machine.trains,
        gains=machine.gains,
        withheld=machine.withheld,
        ladders=machine.ladders,
    )
    yield from further


def in_order(techniques: Mapping[str, str], machines: Sequence[MachineView]) -> dict[str, str]:
    """The anchors of techniques in the order of the first screen."""
    first = [
        technique
        for view in machines
        for technique in (
            *(step.technique for step in view.steps),
            *(block.technique for block in view.lines),
        )
    ]
    return {id: techniques[id] for id in dict.fromkeys([*first, *techniques])}


def technique_ids(summaries: Sequence[Summary]) -> list[str]:
    """Techniques in the order of their best gain on the first machine that has them; then those
    that have no figure."""
    rows = (row.technique for one in summaries for row in one.worths)
    compared = (case.technique for one in summaries for case in one.cases if _compares(case))
    return list(dict.fromkeys((*rows, *compared)))


def _compares(case: Case) -> bool:
    """Whether its arms are compared: more than one was measured, and one is a baseline."""
    if case.first.ceiling or case.first.judges_integrity:
        return False
    roles = {arm.role for arms in case.arms.values() for arm in arms[:1]}
    return len(case.arms) > 1 and "baseline" in roles


def _decides(result: CheckResult) -> bool:
    return result.verdict != SKIPPED and result.id.startswith(("roof/", "health/"))
