"""`qualify --burn`: all GPUs at once under one product for about a time, and four lines a card.

It is the fixed product of `ceiling/gemm`, sustained, in FP32 and BF16 by turns: the first arm of a
case is measured with each other one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpulift.analysis.machine import saved, verdict
from gpulift.analysis.machine.checks import judge_run, measured_checks
from gpulift.analysis.machine.health import UNKNOWN, Health, judge_health, read_health
from gpulift.analysis.machine.presence import judge_presence
from gpulift.analysis.machine.qualified import Asked, Qualified, card_of
from gpulift.analysis.machine.results import FIXED, CheckResult
from gpulift.analysis.machine.siblings import compare_siblings, judge_siblings
from gpulift.analysis.machine.tables import quantity
from gpulift.analysis.summary import Summary, highest
from gpulift.commands.qualify_together import measure_together, parts_of
from gpulift.engine import machine, measuring
from gpulift.ground import text
from gpulift.ground.entry import say
from gpulift.ground.errors import FAILED, OK
from gpulift.records.model import Context

TECHNIQUE = "ceiling/gemm"
PRODUCT = f"^{TECHNIQUE}/regime:sustained/product:fixed/bf16$"
LAUNCH_S = 22.0  # 10.3 s an arm on three H200 (results/), and the start of a process


@dataclass(frozen=True)
class Burnt:
    """The cards as they came, and what they say of each other."""

    cards: tuple[Qualified, ...]
    among: tuple[CheckResult, ...]
    shares: Mapping[str, float]  # by card: of the cards' median rate, where there are enough

    @property
    def results(self) -> list[CheckResult]:
        """All checks, named so that those of several cards can be told apart."""
        return [
            *(
                replace(one, id=f"{one.id} ({_name(card)})")
                for card in self.cards
                for one in card.results
            ),
            *self.among,
        ]

    @property
    def lines(self) -> Iterator[str]:
        """Four for each card, then the verdict."""
        for card in self.cards:
            yield from _of_card(card, self.shares.get(_name(card)))
        load = verdict.load_of(*(one.summary for one in self.cards))
        answer = verdict.answer(self.results, load=load)
        yield f"{answer.glyph} {answer.sentence}{answer.names}"


def burn(asked: Asked, burn_s: float, contexts: dict[int, Context]) -> Burnt:
    """Measures and judges, and keeps both."""
    bench = machine.find_bench()
    options = measuring.Options(filter=PRODUCT, launches=max(1, round(burn_s / LAUNCH_S)))
    machine.require_selected(machine.catalogue(bench), PRODUCT)
    usable = len(machine.gpus_named(bench, "all"))
    presence = judge_presence(next(iter(contexts.values())), usable, asked.expected_gpus, 0)
    before = {index: read_health(machine.health(bench, index)) for index in contexts}
    with parts_of(asked.out, contexts, options, {"burn_s": burn_s}) as parts:
        gpus, launches = text.counted(len(contexts), "GPU"), options.launches or 1
        took = f"{text.counted(launches, 'launch', 'launches')} of some {LAUNCH_S:.0f} s"
        say(f"one product on {gpus}: {took}")
        busy = measure_together(options, contexts, bench, parts, "burn")
        cards: list[Qualified] = []
        for index, summary in busy.items():
            after = read_health(machine.health(bench, index))
            own = () if cards else presence  # the first one's verdicts have it
            cards.append(_judged(summary, before[index], after, own))
        found = compare_siblings({}, {_name(card): card.summary for card in cards})
        among = judge_siblings(found)
        saved.save(parts.folder / saved.SIBLINGS_FILE, saved.siblings_document(found, among))
    shares = {
        one.rate.name: 1 + one.deviation for one in found.positions if "/bf16/" in one.rate.check
    }
    return Burnt(tuple(cards), among, shares)


def _judged(
    summary: Summary, before: Health, after: Health, presence: Sequence[CheckResult]
) -> Qualified:
    health = (*judge_health(before, after, summary.run.records), *presence)
    results = judge_run(summary, summary.reference, health, PRODUCT)
    folder = summary.run.folder
    saved.save(folder / saved.VERDICT_FILE, saved.document(summary, results))
    return Qualified(folder, FAILED if summary.broken else OK, summary, results)


def _name(card: Qualified) -> str:
    return card_of(card.summary.run.records[0].context)


def _of_card(card: Qualified, share: float | None) -> Iterator[str]:
    """Its rates, its heat, its power and clock, and what went wrong."""
    records = card.summary.run.records
    checks = [one for one in measured_checks(card.summary) if one.id.startswith(FIXED)]
    rates = ", ".join(f"{one.arm} {quantity(one.estimate.value, one.unit)}" for one in checks)
    of = f", {text.percent(share)} of the cards' median" if share else ""
    glyph = verdict.GLYPHS[verdict.overall(card.results)]
    yield f"{glyph} GPU {_name(card)}: {rates or 'nothing was measured'}{of}"
    told = {one.id.removeprefix("health/"): one.reason for one in card.results}
    yield f"  heat: {told.get('temperature', UNKNOWN)}"
    power, limit = highest(records, "power_w"), told.get("power_limit", UNKNOWN)
    yield f"  power: {f'at most {power:.0f} W of ' if power else ''}{limit}"
    seen = [one.telemetry.ranges.get("sm_clock_hz") for one in records if one.telemetry]
    clock = min((one.median for one in seen if one), default=None)
    at = f"{clock * 1e-6:.0f} MHz, " if clock else ""
    right = sum(one.outcome == "ok" for one in records)
    results = f"results right in {right} of {text.counted(len(records), 'launch', 'launches')}"
    yield f"  clock: {at}{told.get('throttle', UNKNOWN)}; {results}"
