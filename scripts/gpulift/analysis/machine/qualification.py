"""Judges what a qualification measured: of each card, of several together, and among each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpulift.analysis.machine import card_lines, driver, health, rounds, saved, topology, verdict
from gpulift.analysis.machine.checks import judge_run
from gpulift.analysis.machine.links import judge_node
from gpulift.analysis.machine.results import FAIL, PASS, CheckResult
from gpulift.analysis.machine.siblings import Siblings, compare_siblings, judge_siblings
from gpulift.analysis.machine.unmeasured import of_problem
from gpulift.analysis.reference import find_reference
from gpulift.analysis.summary import Summary, summarise
from gpulift.engine import machine
from gpulift.engine.measuring import Options, Say
from gpulift.engine.qualification import NODE, Plan
from gpulift.engine.qualifying import Evidence, Folders, Looks
from gpulift.ground.errors import (
    FAILED,
    NOT_COMPARABLE,
    NOTHING_RAN,
    OK,
    GpuliftError,
)
from gpulift.records.read import Run, read_run

PRESENCE = "health/gpus"


@dataclass(frozen=True)
class Qualified:
    """One measured card, or several together: the records, their summary, every verdict."""

    folder: Path
    exit_code: int
    summary: Summary
    results: tuple[CheckResult, ...]

    @property
    def card(self) -> str:
        """Short hash of the first GPU; empty where there is none."""
        return self.summary.run.records[0].context.card


@dataclass(frozen=True)
class Among:
    """What the cards say of each other, and the file that keeps it."""

    siblings: Siblings
    results: tuple[CheckResult, ...]
    file: Path

    @property
    def shares(self) -> Mapping[str, float]:
        """By card: of the cards' median rate in the product that burns, where they are enough."""
        places = (one for one in self.siblings.positions if "/bf16/" in one.rate.check)
        return {one.rate.name: 1 + one.deviation for one in places}

    @property
    def document(self) -> Mapping[str, Any]:
        """As it is kept."""
        return saved.siblings_document(self.siblings, self.results)


@dataclass(frozen=True)
class Qualification:
    """The cards, alone or all at once where none was measured alone, what they do with each other,
    and what they say of each other where several were asked for."""

    cards: tuple[Qualified, ...]
    node: Qualified | None = None
    among: Among | None = None
    setting: str = "alone"

    @property
    def parts(self) -> tuple[Qualified, ...]:
        """All that has records of its own."""
        return (*self.cards, *([self.node] if self.node else []))

    @property
    def results(self) -> list[CheckResult]:
        """Every check, of several cards named so that they can be told apart."""
        if self.among is None:
            return [result for card in self.cards for result in card.results]
        own = (
            replace(result, id=f"{result.id} ({card.card}, {self.setting})")
            for card in self.cards
            for result in card.results
        )
        return [*own, *self.among.results, *(self.node.results if self.node else ())]

    @property
    def answer(self) -> verdict.Answer:
        """The verdict on the machine."""
        load = verdict.load_of(*(card.summary for card in self.cards))
        return verdict.answer(self.results, load=load)

    def exit_code(self, filtered: bool) -> int:
        """1 with any failure; 5 when more than a tenth of what decides is inconclusive; 77 where
        nothing ran, but of one card on purpose: a skip is a result; else 0."""
        judged = verdict.exit_code_of(self.results)
        if judged == OK and {card.exit_code for card in self.cards} == {NOTHING_RAN}:
            return NOTHING_RAN if filtered or self.among else OK
        return FAILED if FAILED in {part.exit_code for part in self.parts} else judged


def summary_of(run: Run, say: Say) -> Summary:
    """The run with its model's reference; warnings of its reading are said."""
    for warning in run.warnings:
        say(f"warning: {warning}")
    return summarise(run, find_reference(machine.results_folder(), run.records[0].context.slug))


def looks(say: Say) -> Looks:
    """What is looked at while it is measured: first rates, and what is then open."""

    def further(folder: Path, options: Options, ends_s: float) -> int:
        return rounds.measure(folder, options, _speeds, ends_s, say)

    return Looks(lambda folder: card_lines.of_card(summarise(read_run(folder), None)), further)


def _speeds(folder: Path) -> tuple[CheckResult, ...]:
    """The verdicts so far, without those on the card's health."""
    run = read_run(folder)
    known = find_reference(machine.results_folder(), run.records[0].context.slug)
    return judge_run(summarise(run, known), known)


def judge(plan: Plan, into: Folders, evidence: Iterator[Evidence], say: Say) -> Qualification:
    """Each part as it comes, and keeps its verdicts beside its records."""
    cards: list[Qualified] = []
    at_once: list[Qualified] = []
    shared: Qualified | None = None
    for measured in evidence:
        part = measured.part
        if part.name == NODE:
            shared = _judge_node(plan, measured, say)
        elif part in plan.alone or plan.burns:
            # The first one's verdicts have whether all are there.
            cards.append(_judge_card(measured, () if cards else judge_presence(plan), say))
        else:
            at_once.append(Qualified(measured.folder, OK, _summary(measured, say), ()))
    if into.above is None or not plan.whole:
        return Qualification(tuple(cards))
    busy = cards if plan.burns else at_once
    among = _judge_among([] if plan.burns else cards, busy, into.above / saved.SIBLINGS_FILE)
    setting = "all at once" if plan.burns else "alone"
    return Qualification(tuple(cards), shared, among, setting)


def judge_presence(plan: Plan) -> tuple[CheckResult, ...]:
    """Whether the GPUs are there that should be; nothing where neither user nor bus says it."""
    if plan.lost:
        return (CheckResult(PRESENCE, FAIL, *plan.lost, kind=saved.HEALTH),)
    if not plan.asked.expected_gpus:
        return ()
    return (CheckResult(PRESENCE, PASS, f"{plan.usable} can be used", kind=saved.HEALTH),)


def _judge_card(measured: Evidence, presence: tuple[CheckResult, ...], say: Say) -> Qualified:
    summary = _summary(measured, say)
    checks = (*_health(measured, summary), *presence)
    results = judge_run(summary, summary.reference, checks, measured.part.options.filter or "")
    return _kept(measured, summary, results)


def _judge_node(plan: Plan, measured: Evidence, say: Say) -> Qualified:
    cards = {
        part.options.gpu: part.context.card for part in plan.alone if part.options.gpu is not None
    }
    summary = _summary(measured, say)
    if measured.exit_code is None:
        links = list(saved.kept_health(measured.folder) or ())
    else:
        _keep_topology(measured.folder, say)
        links = [
            replace(result, id=f"{result.id} ({cards[gpu]}, links busy)")
            for gpu, both in measured.health.items()
            for result in health.judge_links(*map(driver.read_health, both))
            if gpu is not None
        ]
    return _kept(measured, summary, judge_node(summary, cards, links))


def _summary(measured: Evidence, say: Say) -> Summary:
    """Refuses (exit code 4) records of another card than is here now."""
    summary = summary_of(read_run(measured.folder), say)
    of, here = summary.run.records[0].context.card, measured.part.context.card
    if of != here:
        told = f"{measured.folder}: is of card {of}, and {here} is here now: name another folder"
        raise GpuliftError(told, NOT_COMPARABLE)
    return summary


def _health(measured: Evidence, summary: Summary) -> tuple[CheckResult, ...]:
    """What was seen before and after the run, or where it was not kept, what is seen now."""
    records = summary.run.records
    for before, after in measured.health.values():
        looks = driver.read_health(before), driver.read_health(after)
        return health.judge_health(*looks, records)
    kept = saved.kept_health(measured.folder)
    if kept is not None:
        return tuple(check for check in kept if check.id != PRESENCE)
    now = machine.health(machine.find_bench(), measured.part.options.gpu)
    return health.judge_health(None, driver.read_health(now), records)


def _kept(measured: Evidence, summary: Summary, results: tuple[CheckResult, ...]) -> Qualified:
    saved.save(measured.folder / saved.VERDICT_FILE, saved.document(summary, results))
    ran = any(record.outcome == "ok" for record in summary.run.records)
    code = measured.exit_code if measured.exit_code is not None else OK if ran else NOTHING_RAN
    return Qualified(measured.folder, FAILED if summary.broken else code, summary, results)


def _keep_topology(folder: Path, say: Say) -> None:
    answer = topology.ask()
    if isinstance(answer, str):
        say(f"no topology: {answer}")
    else:
        saved.save(folder / topology.FILE, topology.document(answer))


def _judge_among(alone: Sequence[Qualified], busy: Sequence[Qualified], file: Path) -> Among:
    """Judges the cards and writes what was found. GpuliftError where it cannot be."""
    at_once = {card.card: card.summary for card in busy}
    siblings = compare_siblings({card.card: card.summary for card in alone}, at_once)
    crowded = (row for card, summary in at_once.items() for row in judge_together(card, summary))
    own = (*judge_siblings(siblings), *(crowded if alone else ()))
    among = Among(siblings, own, file)
    saved.save(file, among.document)
    return among


def judge_together(card: str, summary: Summary) -> list[CheckResult]:
    """What went wrong on a card only while all were busy: failed cases, throttling, wrong bits."""
    seen = health.judge_health(None, None, summary.run.records)
    broken = (of_problem(problem, summary) for problem in summary.broken)
    failed = [*(result for result in seen if result.verdict == FAIL), *broken]
    return [replace(result, id=f"{result.id} ({card}, all at once)") for result in failed]
