"""What runs say: the one value that reports, tables and exports show, and compute nothing beside.

`read_beside` reads what stands beside runs in a folder of results, `analyse` holds the runs
against it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpulift.analysis import claims, errata
from gpulift.analysis.choice import Choice
from gpulift.analysis.claims import Judgement
from gpulift.analysis.cost import Prices
from gpulift.analysis.doubts import NO_DOUBTS, Doubts, doubts_of
from gpulift.analysis.errata import Erratum
from gpulift.analysis.gains import Gain, gains_of, without_withheld
from gpulift.analysis.ladder import Ladder, ladders_of
from gpulift.analysis.ledger import Claim, read_ledger
from gpulift.analysis.machine import feeding, training
from gpulift.analysis.machine.checks import judge_run
from gpulift.analysis.machine.results import SKIPPED, WORST_FIRST, CheckResult
from gpulift.analysis.machine.saved import health_of
from gpulift.analysis.machine.topology import Topology, kept
from gpulift.analysis.models import with_models
from gpulift.analysis.reference import FOLDER as REFERENCES
from gpulift.analysis.reference import Reference, read_reference
from gpulift.analysis.side_by_side import SideBySide, side_by_side
from gpulift.analysis.summary import Summary, with_roofs
from gpulift.analysis.today import UNKNOWN, Today, read_today
from gpulift.gate.certificate import Certificate, find_certificate
from gpulift.records.model import Record
from gpulift.verdicts.duets import DuetRow, duet_rows


@dataclass(frozen=True)
class Beside:
    """What stands beside runs: known errors, published claims and figures, how often the gate is
    wrong on a model (by slug), records of other runs of the same models, prices of the user, what
    techniques are today, and what ran on other cards of a host (`analysis.neighbours`)."""

    errata: tuple[Erratum, ...] = ()
    ledger: tuple[Claim, ...] = ()
    references: tuple[Reference, ...] = ()
    certificates: Mapping[str, Certificate] = field(default_factory=dict)
    further: tuple[Record, ...] = ()
    prices: Prices | None = None
    today: Today = UNKNOWN
    neighbours: Mapping[str, int] = field(default_factory=dict)

    @property
    def choice(self) -> Choice:
        """By what these say."""
        return Choice(self.today, self.errata)


@dataclass(frozen=True)
class JudgedRun:
    """A run with the verdicts on its machine, and how its GPUs are linked where that was kept."""

    summary: Summary
    checks: tuple[CheckResult, ...] = ()
    topology: Topology | None = None


@dataclass(frozen=True)
class Machine:
    """What all runs of a machine say together: what techniques are worth, how fast it trains whole
    models and is fed (of the first run that knows), what errata withhold, and what settings
    bring one on top of the other."""

    gains: tuple[Gain, ...]
    trains: tuple[str, ...]
    withheld: tuple[Gain, ...]
    ladders: tuple[Ladder, ...] = ()


@dataclass(frozen=True)
class ModelClaims:
    """The published claims held against all records of a model, the best supported first."""

    machine: str
    judgements: tuple[Judgement, ...]


@dataclass(frozen=True)
class Analysis:
    """Runs, machines as they came, each run once; of a machine the one that answers most first."""

    runs: tuple[JudgedRun, ...]
    machines: Mapping[str, Machine] = field(default_factory=dict)  # by model
    doubts: Doubts = NO_DOUBTS
    claims: tuple[ModelClaims, ...] = ()
    references: tuple[Reference, ...] = ()
    certificates: Mapping[str, Certificate] = field(default_factory=dict)
    duets: tuple[DuetRow, ...] = ()
    prices: Prices | None = None
    beside: SideBySide | None = None  # of two GPU models or more

    @property
    def summaries(self) -> tuple[Summary, ...]:
        """Of all runs."""
        return tuple(run.summary for run in self.runs)


def read_beside(
    results: Path,
    models: Iterable[str] = (),
    further: Iterable[Record] = (),
    prices: Prices | None = None,
    neighbours: Mapping[str, int] | None = None,
) -> Beside:
    """What a folder of results holds beside runs; certificates of these models alone, by slug.
    GpuliftError for a file that cannot be read."""
    certificates = {model: find_certificate(results, model) for model in dict.fromkeys(models)}
    return Beside(
        errata=errata.read_errata(results / errata.FILE),
        ledger=read_ledger(),
        references=tuple(map(read_reference, sorted((results / REFERENCES).glob("*.json")))),
        certificates={model: one for model, one in certificates.items() if one},
        further=tuple(further),
        prices=prices,
        today=read_today(results),
        neighbours=neighbours or {},
    )


def analyse(
    summaries: Sequence[Summary],
    beside: Beside,
    verdicts: Mapping[Path, Sequence[CheckResult]] | None = None,
) -> Analysis:
    """All that can be said of these runs, without ratios that errata withhold. `verdicts` of a run
    folder stand as they are; others are made from its records and what `qualify` kept beside
    them."""
    modelled = with_models(_ordered(_distinct(summaries)), beside.further)
    placed = [with_roofs(one, modelled) for one in modelled]
    doubts = doubts_of(placed, beside.errata, beside.today, beside.neighbours)
    return Analysis(
        runs=tuple(_judged(one, verdicts or {}, doubts) for one in placed),
        machines=machines_of(placed, doubts, beside.prices),
        doubts=doubts,
        claims=tuple(_claims(placed, beside, doubts)),
        references=beside.references,
        certificates=beside.certificates,
        duets=tuple(duet_rows([one.run for one in placed])),
        prices=beside.prices,
        beside=side_by_side(placed, beside.further, beside.prices, beside.choice),
    )


def machines_of(
    summaries: Sequence[Summary], doubts: Doubts, prices: Prices | None = None
) -> dict[str, Machine]:
    """Each machine of these runs, by its model."""
    groups: dict[str, list[Summary]] = {}
    for summary in summaries:
        groups.setdefault(summary.run.model, []).append(summary)
    return {model: _machine(group, doubts, prices) for model, group in groups.items()}


def _machine(group: Sequence[Summary], doubts: Doubts, prices: Prices | None) -> Machine:
    told = (
        (training.answers(summary, doubts) for summary in group),
        (feeding.answers(summary) for summary in group),
    )
    found = list(gains_of(group, doubts))
    return Machine(
        gains=tuple(one for one in found if not one.grade.withheld),
        trains=tuple(line for each in told for line in next(filter(None, each), [])),
        withheld=tuple(one for one in found if one.grade.withheld),
        ladders=ladders_of(group, doubts, prices),
    )


def _distinct(summaries: Sequence[Summary]) -> list[Summary]:
    """Each run once, though it may be named twice: ids on a page must differ."""
    by_records = {tuple(record.id for record in one.run.records): one for one in summaries}
    return list(by_records.values())


def _ordered(summaries: Sequence[Summary]) -> list[Summary]:
    """Machines with a GPU first, else as they came; of each the run that answers most is first, of
    equals the newest."""
    gpus_first = sorted(summaries, key=lambda one: one.run.records[0].context.gpu is None)
    models = list(dict.fromkeys(one.run.model for one in gpus_first))
    newest = sorted(summaries, key=lambda one: one.run.records[0].began_at, reverse=True)
    most = sorted(newest, key=lambda one: -len(one.worths) - len(one.roofs))
    return sorted(most, key=lambda one: models.index(one.run.model))


def judged(summary: Summary) -> JudgedRun:
    """By its records, and what `qualify` kept beside them."""
    checks = judge_run(summary, summary.reference, health_of(summary.run))
    return JudgedRun(summary, tuple(checks), kept(summary.run.folder))


def by_machine(runs: Sequence[JudgedRun], apart: Collection[Path] = ()) -> list[JudgedRun]:
    """A run for each machine, the first of it, with the checks of all: of each card the newest that
    judged, and of several cards the worst. Those in folders that are to stay `apart` do."""
    groups: dict[object, list[JudgedRun]] = {}
    for one in runs:
        run = one.summary.run
        groups.setdefault(run.folder if run.folder in apart else run.model, []).append(one)
    return [replace(group[0], checks=_of_all(group)) for group in groups.values()]


def _of_all(runs: Sequence[JudgedRun]) -> tuple[CheckResult, ...]:
    newest: dict[tuple[str, str], CheckResult] = {}
    for one in sorted(runs, key=lambda one: one.summary.run.records[0].began_at):
        card = one.summary.run.records[0].context.card
        for check in one.checks:
            before = newest.get((check.id, card))
            if before is None or check.verdict != SKIPPED or before.verdict == SKIPPED:
                newest[check.id, card] = check
    worst: dict[str, CheckResult] = {}
    for check in sorted(newest.values(), key=lambda one: WORST_FIRST.index(one.verdict)):
        worst.setdefault(check.id, check)
    return tuple(worst.values())


def _judged(
    summary: Summary, verdicts: Mapping[Path, Sequence[CheckResult]], doubts: Doubts
) -> JudgedRun:
    known = verdicts.get(summary.run.folder)
    shown = without_withheld(summary, doubts)
    if known is None:
        return replace(judged(summary), summary=shown)
    return JudgedRun(shown, tuple(known), kept(summary.run.folder))


def _claims(summaries: Sequence[Summary], beside: Beside, doubts: Doubts) -> Iterable[ModelClaims]:
    """By model in the order of the machines; of claims the ones without known errors first."""

    def order(judgement: Judgement) -> tuple[tuple[bool, bool, int], bool]:
        test = judgement.claim.test
        arms = (test.arm, test.baseline) if test else ()
        return claims.rank(judgement), doubts.wrong_times(judgement.records, arms)

    machines: dict[str, str] = {}
    records: dict[str, dict[str, Record]] = {}
    for summary in summaries:
        model = summary.run.records[0].context.slug
        machines.setdefault(model, summary.run.machine)
        of_model = records.setdefault(model, {})
        of_model.update((record.id, record) for record in summary.run.records)
    for record in beside.further:  # with all of its arms
        if record.context.slug in records:
            records[record.context.slug][record.id] = record
    for model, machine in machines.items():
        judgements = claims.judge(
            beside.ledger, [*records[model].values()], beside.choice, beside.neighbours
        )
        yield ModelClaims(machine, tuple(sorted(judgements, key=order)))
