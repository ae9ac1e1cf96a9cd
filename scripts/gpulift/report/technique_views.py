"""Techniques, machine by machine, and the cells of their rows, as pages show them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from markupsafe import Markup

from gpulift.analysis import arms, facts, gains, predictions
from gpulift.analysis.claims import Judgement
from gpulift.analysis.doubts import NO_DOUBTS, Doubts
from gpulift.analysis.gains import Gain
from gpulift.analysis.summary import Worth
from gpulift.ground import text
from gpulift.ground.estimate import Estimate
from gpulift.records.model import Record
from gpulift.report import findings, marks, strips
from gpulift.report.claimed import ClaimsView
from gpulift.report.machine_views import MachineView
from gpulift.verdicts.cases import Case

ITEMS = "items/s"


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

    @property
    def names(self) -> str:
        """Its arms and what its cases are of, each once: a search looks into them."""
        cases = [case for part in self.parts for case in part.cases]
        arms = (arm.name for case in cases for arm in case.first.arms)
        axes = (axis for case in cases for axis in case.case_id.split("/"))
        return " ".join(dict.fromkeys((*arms, *axes)))


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
    links = (link.format(one.number, one.short) for one in doubts.known(records))
    return Markup(" ").join(links)


def memory(row: Worth) -> tuple[str, ...]:
    """Peak memory of the arm and of its baseline, by kind."""
    return facts.memory(row.facts, row.baseline_facts)
