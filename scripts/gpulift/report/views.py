"""What page and twin show, in one shape for both: made from summaries and their checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from markupsafe import Markup

from gpulift.analysis import arms, conditions, facts, gains, predictions
from gpulift.analysis.analyse import JudgedRun, Machine
from gpulift.analysis.claims import Judgement
from gpulift.analysis.doubts import NO_DOUBTS, Doubts
from gpulift.analysis.gains import FIRST_MODELS, AnswerLine, Gain, StepLine, StepLists, Theme
from gpulift.analysis.ladder import Ladder
from gpulift.analysis.machine import verdict
from gpulift.analysis.machine.checks import basis
from gpulift.analysis.machine.results import FAIL, INCONCLUSIVE, PASS, SKIPPED, CheckResult
from gpulift.analysis.summary import Summary, Worth
from gpulift.ground import text
from gpulift.ground.estimate import Estimate
from gpulift.records.model import IMPORT, Record
from gpulift.report import findings, marks, roofline, strips, tables
from gpulift.report.claimed import ClaimsView
from gpulift.report.marks import Scale
from gpulift.verdicts import stats
from gpulift.verdicts.cases import Case, group_cases

SYNTHETIC = "synthetic test data"
ITEMS = "items/s"
MOST_GAPS = 4
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
        kept = ((one.name, tuple(filter(_matters, one.lines))) for one in self.themes)
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
        return tuple(_gaps(self))

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


@dataclass(frozen=True)
class RowView:
    """An arm of a case on one machine."""

    gain: Gain
    plot: Markup

    @property
    def worth(self) -> Worth:
        """The comparison."""
        return self.gain.row

    @property
    def clock(self) -> str:
        """The SM clock in the arm's windows, the gain in its cycles, what held the clock down."""
        row = self.worth
        parts = [f"{row.sm_clock_hz / 1e6:.0f} MHz"] if row.sm_clock_hz else []
        if row.pair.cycles:
            parts.append(f"{text.ratio(1 / row.pair.cycles.value)} in cycles")
        return ", ".join([*parts, *row.throttle])

    @property
    def records(self) -> tuple[Record, ...]:
        """The launches behind the figures, in order."""
        return self.worth.case.measured


@dataclass(frozen=True)
class MetricsRow:
    """An arm of a case and its metrics, in the order of their names at the table's head."""

    case: Case
    arm: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class PartView:
    """A technique on one machine; `strips` are the raw windows of cases, not of all where many;
    `withheld` says what errata call wrong, and of which arms in which cases, which no row has."""

    machine: MachineView
    id: str
    cases: tuple[Case, ...]
    rows: tuple[RowView, ...]
    withheld: tuple[tuple[str, str], ...]
    axis: str
    said: tuple[str, ...]
    strips: tuple[tuple[Case, Markup], ...]
    not_stripped: int
    folded: bool = False  # another run of the same machine stands before it

    @property
    def figure(self) -> str:
        """Name of the figure along an axis of the cases, which is there where there is one."""
        return self.id

    @property
    def baselines(self) -> str:
        """What the arms are held against."""
        return ", ".join(dict.fromkeys(row.worth.baseline for row in self.rows))

    @cached_property
    def mixed(self) -> bool:
        """Whether cases have different baselines, so that each row must name its own."""
        return len({row.worth.baseline for row in self.rows}) > 1

    @cached_property
    def energy(self) -> bool:
        """Whether any arm's joules are known."""
        return any(row.worth.energy_j is not None for row in self.rows)

    @cached_property
    def cpu(self) -> bool:
        """Whether any arm is held against its baseline in CPU seconds."""
        return any(row.worth.cpu_ratio is not None for row in self.rows)

    @cached_property
    def launches(self) -> bool:
        """Whether any arm's kernel launches are known."""
        return any(row.worth.facts.launches is not None for row in self.rows)

    @property
    def borrowed(self) -> list[str]:
        """The runs that measured roofs of which the rows are shares, where it was not their own."""
        sources = (row.worth.roof_from for row in self.rows)
        return list(dict.fromkeys(one for one in sources if one))

    @cached_property
    def metric_names(self) -> tuple[str, ...]:
        """All metrics that any of its arms has."""
        each = [row.worth for row in self.rows]
        both = [one for row in each for one in (row.baseline_facts, row.facts)]
        names = (name for one in both for name in (*one.metrics, *sorted(one.withheld)))
        return tuple(dict.fromkeys(names))

    @cached_property
    def metrics(self) -> tuple[MetricsRow, ...]:
        """What arms say of themselves, arm by arm."""
        return tuple(_metrics([row.worth for row in self.rows], self.metric_names))


@dataclass(frozen=True)
class TechniqueView:
    """A technique on all machines that measured it, and what was claimed of it."""

    id: str
    anchor: str
    first: Record
    parts: tuple[PartView, ...]
    claims: tuple[tuple[str, str, Judgement], ...]


def machine_views(
    runs: Sequence[JudgedRun],
    machines: Mapping[str, Machine],
    techniques: Mapping[str, str],
) -> list[MachineView]:
    """Each run with its checks; the first of a machine speaks for all of its runs.

    `techniques` has the anchor of each.
    """
    groups: dict[str, list[MachineView]] = {}
    for number, run in enumerate(runs):
        before = groups.setdefault(run.summary.run.model, [])
        before.append(_machine_view(run, number, before))
    made = [
        view
        for name, group in groups.items()
        for view in _joined(group, machines[name], techniques)
    ]
    return sorted(made, key=lambda view: view.number)


def _machine_view(run: JudgedRun, number: int, before: Sequence[MachineView]) -> MachineView:
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
        known=frozenset(one.id for one in before[0].results) if before else frozenset(),
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


def _matters(line: AnswerLine) -> bool:
    return line.matters


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


def technique_views(
    machines: Sequence[MachineView],
    techniques: Mapping[str, str],
    claims: Sequence[ClaimsView],
    most_strips: int,
    doubts: Doubts = NO_DOUBTS,
) -> tuple[TechniqueView, ...]:
    """Every technique in the given order, on every machine that measured it; of its rows those with
    a qualm or in doubt stand behind, and those that are withheld are named. Of a machine's runs one
    without a figure stands behind those that have one.

    At most so many cases have their raw windows drawn, as many of each technique and machine.
    """
    cases: dict[tuple[str, int], list[Case]] = {}
    for machine in machines:
        for case in machine.summary.cases:
            if case.measured and case.technique in techniques:
                cases.setdefault((case.technique, machine.number), []).append(case)
    models = [machine.summary.run.model for machine in machines]
    made = []
    strips_each = max(1, most_strips // max(1, len(cases)))
    for id, anchor in techniques.items():
        measured = [
            (machine, found) for machine in machines if (found := cases.get((id, machine.number)))
        ]
        parts: list[PartView] = []
        for machine, found in sorted(
            measured,
            key=lambda one: (
                models.index(one[0].summary.run.model),
                not one[0].summary.worths_of(id),
            ),
        ):
            parts.append(_part(machine, anchor, found, strips_each, parts, doubts))
        tested = tuple(
            (view.model, view.anchor_of(one), one)
            for view in claims
            for one in view.told
            if one.claim.test and one.claim.test.technique == id
        )
        made.append(TechniqueView(id, anchor, parts[0].cases[0].first, tuple(parts), tested))
    return tuple(made)


def part_id(anchor: str, machine: MachineView) -> str:
    """The id of a technique on a machine, which is also the name of its figure."""
    return f"{anchor}-{machine.number}"


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


def _part(
    machine: MachineView,
    anchor: str,
    cases: Sequence[Case],
    most_strips: int,
    before: Sequence[PartView],
    doubts: Doubts,
) -> PartView:
    found = [gains.gain_of(row, doubts) for row in machine.summary.worths_of(cases[0].technique)]
    rows = sorted(found, key=lambda one: one.behind)
    axis = marks.scale([one.row.speedup for one in rows])
    return PartView(
        machine=machine,
        id=part_id(anchor, machine),
        cases=tuple(cases),
        rows=tuple(RowView(one, marks.draw([one.row.speedup], axis)) for one in rows),
        withheld=tuple(_withheld(cases, doubts)),
        axis=axis.label,
        said=findings.of_rows([one.row for one in rows]),
        strips=tuple(_strips(cases[:most_strips])),
        not_stripped=max(0, len(cases) - most_strips),
        folded=any(machine.summary.run.model == one.machine.summary.run.model for one in before),
    )


def _withheld(cases: Sequence[Case], doubts: Doubts) -> Iterator[tuple[str, str]]:
    """`fused (65536), whole_step_graph (gpt2, small)`, by reason."""
    reasons: dict[str, list[str]] = {}
    for case in cases:
        baseline = next((arm.name for arm in case.first.arms if arm.role == "baseline"), "")
        for name in case.arms:
            if name != baseline and (why := doubts.withheld(case.measured, (name, baseline))):
                said = f"{name} ({text.case_label(case.case_id, short=True)})"
                reasons.setdefault(why, []).append(said)
    yield from ((why, ", ".join(named)) for why, named in reasons.items())


def _strips(cases: Sequence[Case]) -> Iterator[tuple[Case, Markup]]:
    """The raw windows of each case."""
    for case in cases:
        drawn = strips.strip(case, [arm.name for arm in case.first.arms])
        if drawn:
            yield case, drawn


def cpu(row: Worth) -> tuple[str, ...]:
    """CPU seconds of a step, of the arm and of its baseline, and their ratio."""
    return (facts.cpu(row.facts, row.baseline_facts), *_ratio(row.cpu_ratio))


def energy(row: Worth) -> tuple[str, ...]:
    """Joules of a step and of an item, of the arm and of its baseline, and their ratio."""
    return (*facts.energy(row.facts, row.baseline_facts), *_ratio(row.energy_ratio))


def _ratio(found: Estimate | None) -> Iterator[str]:
    if found is not None:
        yield text.speedup(found)


def launches(row: Worth) -> str:
    """Kernel launches of a step, of the arm and of its baseline."""
    return facts.launches(row.facts, row.baseline_facts)


def rates(row: Worth) -> tuple[str, ...]:
    """Items in a second where they have a name, then what the roof counts."""
    found = []
    if row.items_per_s:
        found.append(arms.item_rate(row.items_per_s.value, row.item))
    if row.rate and row.rate_unit != ITEMS:
        found.append(text.rate(row.rate.value, row.rate_unit))
    elif row.rate and not found:
        found.append(arms.item_rate(row.rate.value, ""))
    return tuple(found) or (facts.UNKNOWN,)


def bound(row: Worth) -> tuple[str, ...]:
    """What sets the pace, and the share of the roof: `60.3 %`; with a star where another run of the
    machine measured it."""
    share = f"{text.percent(row.roof_fraction)}{'*' if row.roof_from else ''}"
    return (row.bound, share) if row.roof_fraction is not None else (row.bound,)


def predicted(row: Worth) -> tuple[str, ...]:
    """`predicted 4 to 7×`, and by how much it was missed; nothing where its records say nothing."""
    found = predictions.of_case(row.case, row.arm)
    return tuple(
        f"predicted {one.expected}" + (f", missed by {one.missed_by}" if one.missed else "")
        for one in found
    )


def _metrics(rows: Sequence[Worth], names: Sequence[str]) -> Iterator[MetricsRow]:
    """Each arm that has metrics, once: those of baselines stand before their arms."""
    seen = set()
    for row in rows:
        for arm, found in ((row.baseline, row.baseline_facts), (row.arm, row.facts)):
            if found.metrics and (row.case.case_id, arm) not in seen:
                seen.add((row.case.case_id, arm))
                yield MetricsRow(row.case, arm, tuple(_metric(found, name) for name in names))


def _metric(found: facts.Facts, name: str) -> str:
    if name in found.withheld:
        return facts.WITHHELD
    value = found.metrics.get(name)
    return facts.UNKNOWN if value is None else arms.metric(name, value)


def runs(records: Sequence[Record], doubts: Doubts) -> Markup:
    """The launches by number, each leads to its id, and their known errors; a template takes twice
    as long for these."""
    # Only numbers and ids, which are digits of a hash, are in it.
    links = (f'<a href="#r-{r.id}" title="{r.id}">{r.launch + 1}</a>' for r in records)
    errors = error_links(records, doubts)
    return Markup(f'<span class="runs">{"".join(links)}</span>') + errors


def error_links(records: Sequence[Record], doubts: Doubts) -> Markup:
    """`E1 E3`, each leads to a known error that any of the records has."""
    link = Markup('<a class="err" href="#e-{0}" title="known error: {1}">E{0}</a>')
    links = (link.format(one, doubts.errata[one - 1].short) for one in doubts.errors(records))
    return Markup(" ").join(links)


def memory(row: Worth) -> tuple[str, ...]:
    """Peak memory of the arm and of its baseline, by kind."""
    return facts.memory(row.facts, row.baseline_facts)


def _decides(result: CheckResult) -> bool:
    return result.verdict != SKIPPED and result.id.startswith(("roof/", "health/"))


def _names_roof(row: Worth) -> bool:
    arm = row.case.first.arm(row.arm)
    return bool(arm and arm.cost and arm.cost.roof)


def _gaps(view: MachineView) -> Iterator[str]:
    summary = view.summary
    on_gpu = summary.run.records[0].context.gpu is not None
    if on_gpu and summary.worths and all(row.energy_j is None for row in summary.worths):
        yield (
            "Joules of a step: no arm has windows that the card's energy counter resolves;"
            " sustained cases on a card with that counter have them, in records of schema 1.2"
            " or later."
        )
    if any(map(_names_roof, summary.worths)) and all(
        row.roof_fraction is None for row in summary.worths
    ):
        yield (
            "Share of the measured roof: no arm has a ceiling in this run; a run that has the"
            " ceiling techniques gives it."
        )
    skipped = [r for r in view.results if r.verdict == SKIPPED and r.id not in view.known]
    if skipped:
        reasons = Counter(one.reason for one in skipped)
        said = "; ".join(f"{count} × {reason}" for reason, count in reasons.most_common(MOST_GAPS))
        more = len(reasons) - MOST_GAPS
        rest = f"; and for {more} more reason{'s' if more > 1 else ''}" if more > 0 else ""
        yield f"{len(skipped)} checks were skipped: {said}{rest}."
    missing = {r.telemetry_missing for r in summary.run.records if r.telemetry_missing}
    if missing:
        yield f"Telemetry is missing: {'; '.join(sorted(missing)[:MOST_GAPS])}."
