"""The card's own state by the telemetry of a run's records: link, clock, heat, equal bits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from gpulift.analysis.machine.computed_peaks import Facts, facts_of
from gpulift.analysis.machine.driver import Health
from gpulift.analysis.machine.results import FAIL, INCONCLUSIVE, PASS, SKIPPED, CheckResult, judged
from gpulift.analysis.machine.unmeasured import look_again
from gpulift.ground.registers import slowdowns
from gpulift.records.model import Context, Record
from gpulift.records.throttle import throttle_of

NEAR_SLOWDOWN_C = 5.0
LOOK_AHEAD_S = 60.0
# Below three quarters of the clock a card is held back (NVIDIA/nvbench discards such samples, by
# its default clock). From nine tenths on it boosts: the maximum of GeForce cards is above what
# their boost reaches, that of the H200 of results/ is reached.
CLOCK_PASSES = 0.90
CLOCK_FAILS = 0.75


def _pcie(health: Health, records: Sequence[Record]) -> CheckResult | None:
    """The link under load: an idle one is slowed down to save power."""
    contexts = {id(record.context): record.context for record in records}
    limits = [_pcie_limits(context, health) for context in contexts.values()]
    links = [(r.telemetry.pcie_generation, r.telemetry.pcie_width) for r in records if r.telemetry]
    generation, width = (max((v for v in values if v), default=0) for values in _columns(links))
    most, widest = (max((v for v in values if v), default=0) for values in _columns(limits))
    if not (generation and width and most and widest):
        return None
    seen = f"generation {generation} x{width} under load, {most} x{widest} is possible"
    if generation >= most and width >= widest:
        return judged(PASS, seen)
    if not any(_loads_the_link(record) for record in records):
        remedy = "measure transfer or ceiling/host_link: an idle link is slowed down"
        return judged(INCONCLUSIVE, f"{seen}, but no copy was measured", remedy)
    remedy = "seat the card anew; look at slot, riser and firmware settings"
    return judged(FAIL, seen, remedy)


def _columns(pairs: Iterable[tuple[int | None, int | None]]) -> tuple[list[int | None], ...]:
    rows = list(pairs)
    return [first for first, _ in rows], [second for _, second in rows]


def _pcie_limits(context: Context, health: Health) -> tuple[int | None, int | None]:
    facts = facts_of(context.gpu) if context.gpu else Facts()
    link = health.pcie
    return (
        facts.pcie_max_generation or link.max_generation,
        facts.pcie_max_width or link.max_width,
    )


def _loads_the_link(record: Record) -> bool:
    return any(arm.cost and arm.cost.roof.startswith("host_link/") for arm in record.arms)


def _clock(health: Health, records: Sequence[Record]) -> CheckResult | None:
    """The highest SM clock of burst cases, which run before power or heat hold the clock down."""
    seen_hz = [
        record.telemetry.ranges["sm_clock_hz"].max
        for record in records
        if record.regime == "burst"
        and record.telemetry
        and "sm_clock_hz" in record.telemetry.ranges
    ]
    clocks = health.clocks
    facts = (facts_of(record.context.gpu) for record in records if record.context.gpu)
    most = next((f.max_sm_clock_hz for f in facts), None)
    most = most or clocks.max_sm_hz
    if not seen_hz or not most:
        return None
    share = max(seen_hz) / most
    seen = f"{max(seen_hz) / 1e6:.0f} of {most / 1e6:.0f} MHz reached"
    if share >= CLOCK_PASSES:
        return judged(PASS, seen)
    set_to = clocks.application_sm_hz
    if set_to and set_to < most:
        seen += f"; application clocks are set to {set_to / 1e6:.0f} MHz"
    verdict = FAIL if share < CLOCK_FAILS else INCONCLUSIVE
    return judged(verdict, seen, "nvidia-smi -rgc and -rac; then look at power and heat")


def _throttle(health: Health, records: Sequence[Record]) -> CheckResult | None:
    """What held the clock down while cases ran, as far as the driver said it."""
    seen = throttle_of(records)
    if seen.unread == len(records):
        return None
    read = len(records) - seen.unread
    part = f" (the driver said it of {read} of {len(records)} records)" if seen.unread else ""
    bad = [reason for reason in seen.reasons if reason in slowdowns("hardware") | slowdowns("heat")]
    if bad:
        named = "; ".join(f"{reason} in {_held_by(reason, records)}" for reason in bad)
        remedy = "look at cooling, power supply and power cables"
        return judged(FAIL, f"{named}{part}", remedy)
    other = [reason for reason in seen.reasons if reason not in slowdowns("power_limit")]
    if other:
        remedy = "nvidia-smi -rgc and -rac undo clock settings"
        held = f"the clock was held by {', '.join(other)}{part}"
        return judged(INCONCLUSIVE, held, remedy)
    normal = ", ".join(seen.reasons)
    held = f"only {normal}, which is normal under load" if normal else "nothing held the clock down"
    return judged(PASS, f"{held}{part}")


def _held_by(reason: str, records: Sequence[Record]) -> str:
    """The techniques during which that reason held the clock down."""
    throttled = (record for record in records if reason in throttle_of([record]).reasons)
    return ", ".join(sorted({record.technique for record in throttled}))


def _temperature(health: Health, records: Sequence[Record]) -> CheckResult | None:
    limits = health.temperature
    slowdown = limits.slowdown_c
    readings = [
        record.telemetry.ranges["temperature_c"].max
        for record in records
        if record.telemetry and "temperature_c" in record.telemetry.ranges
    ]
    now = limits.now_c
    highest = max([*readings, *([now] if now is not None else [])], default=None)
    if slowdown is None or highest is None:
        return None
    seen = f"{highest:.0f} °C at most, the card slows down at {slowdown:.0f} °C"
    if highest > slowdown - NEAR_SLOWDOWN_C:
        return judged(FAIL, seen, "look at cooling and airflow")
    rise, reached = _steepest(records, highest)
    if rise is None:
        return judged(PASS, seen)
    seen += f"; {rise:+.2f} °C/s in a sustained case"
    if reached + rise * LOOK_AHEAD_S > slowdown - NEAR_SLOWDOWN_C:
        seen += ", which would slow it down within a minute"
        return judged(INCONCLUSIVE, seen, "measure for longer; look at cooling")
    return judged(PASS, seen)


def _steepest(records: Sequence[Record], highest: float) -> tuple[float | None, float]:
    """The steepest rise of a sustained case, and how hot that case became."""
    slopes = []
    for record in records:
        telemetry = record.telemetry
        slope = telemetry.temperature_slope_c_per_s if telemetry else None
        if record.regime == "sustained" and telemetry and slope is not None:
            own = telemetry.ranges.get("temperature_c")
            slopes.append((slope, own.max if own else highest))
    return max(slopes, default=(None, highest))


def integrity(records: Sequence[Record]) -> CheckResult:
    """The repeats of one product, which must give the same bits each time."""
    repeats = [record for record in records if record.judges_integrity]
    reasons = [record.reason for record in repeats if record.outcome == "failed"]
    arms = [arm for record in repeats for arm in record.arms if arm.outcome == "failed"]
    reasons += [f"{arm.name}: {arm.reason}" for arm in arms]
    if reasons:
        seen = f"silent corruption: {reasons[0]}"
        return judged(FAIL, seen, "do not use this card; have it replaced")
    wrong = [record for record in repeats if record.outcome != "ok"]
    if wrong:
        first = wrong[0]
        verdict = SKIPPED if first.outcome == "skipped" else INCONCLUSIVE
        remedy = first.remedy or ("" if verdict == SKIPPED else look_again(first))
        return judged(verdict, f"{first.outcome}: {first.reason}", remedy)
    if not repeats:
        remedy = "./gpulift qualify without a filter that leaves it out"
        return judged(SKIPPED, "the run has no integrity/repeats", remedy)
    return judged(PASS, f"{len(repeats)} repeated cases gave the same bits")


OF_THE_RUN: Mapping[str, Callable[[Health, Sequence[Record]], CheckResult | None]] = {
    "pcie_link": _pcie,
    "sm_clock": _clock,
    "throttle": _throttle,
    "temperature": _temperature,
}
