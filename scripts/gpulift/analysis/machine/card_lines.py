"""A GPU in one line: its rates, and the most that was seen of its clock, heat and power; or in
four, where it was loaded by one product."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpulift.analysis.machine import verdict
from gpulift.analysis.machine.health import UNKNOWN
from gpulift.analysis.machine.measured import measured_checks
from gpulift.analysis.machine.results import FIXED, CheckResult
from gpulift.analysis.machine.tables import quantity
from gpulift.analysis.summary import Summary, highest
from gpulift.ground import text
from gpulift.records.throttle import throttle_of

ROOFS = {"gemm/bf16": "bf16", "device_memory": "memory", "host_link/h2d": "from the host"}


def of_card(summary: Summary) -> str:
    """`GPU 1a2b3c4d: bf16 848 TFLOP/s, ...; at most 1980 MHz, 53 °C, 699 W; slowed by ...`; empty
    without a GPU. What its records do not tell is left out."""
    records = summary.run.records
    gpu = records[0].context.gpu
    if gpu is None:
        return ""
    watched = [record for record in records if record.telemetry]
    parts = [
        ", ".join(_rates(summary)),
        f"at most {', '.join(most)}" if (most := list(_highest(summary))) else "",
        f"clock held down: {throttle_of(watched).words}" if watched else "",
    ]
    return f"GPU {gpu.card}: {'; '.join(filter(None, parts)) or 'nothing was measured of it'}"


def of_burnt(
    summary: Summary, results: Sequence[CheckResult], share: float | None
) -> Iterator[str]:
    """Its rates and their share of the cards' median, its heat, its power and clock, and what went
    wrong."""
    records = summary.run.records
    checks = [check for check in measured_checks(summary) if check.id.startswith(FIXED)]
    rates = ", ".join(f"{one.arm} {quantity(one.estimate.value, one.unit)}" for one in checks)
    of = f", {text.percent(share)} of the cards' median" if share else ""
    glyph, card = verdict.GLYPHS[verdict.overall(results)], records[0].context.card
    yield f"{glyph} GPU {card}: {rates or 'nothing was measured'}{of}"
    reasons = {result.id.removeprefix("health/"): result.reason for result in results}
    yield f"  heat: {reasons.get('temperature', UNKNOWN)}"
    power, limit = highest(records, "power_w"), reasons.get("power_limit", UNKNOWN)
    yield f"  power: {f'at most {power:.0f} W of ' if power else ''}{limit}"
    clocks = [one.telemetry.ranges.get("sm_clock_hz") for one in records if one.telemetry]
    clock = min((clock.median for clock in clocks if clock), default=None)
    at = f"{clock * 1e-6:.0f} MHz, " if clock else ""
    right = sum(record.outcome == "ok" for record in records)
    launches = f"results right in {right} of {text.counted(len(records), 'launch', 'launches')}"
    yield f"  clock: {at}{reasons.get('throttle', UNKNOWN)}; {launches}"


def _rates(summary: Summary) -> Iterator[str]:
    for name, short in ROOFS.items():
        known = [roof for roof in summary.roofs if roof.name == name]
        by_regime = {roof.regime: text.rate(roof.rate.value, roof.unit) for roof in known}
        sustained = by_regime.pop("sustained", "")
        rates = [*by_regime.values(), *([f"{sustained} sustained"] if sustained else [])]
        if rates:
            yield f"{short} {', '.join(rates)}"


def _highest(summary: Summary) -> Iterator[str]:
    for key, scale, unit in (
        ("sm_clock_hz", 1e-6, "MHz"),
        ("temperature_c", 1.0, "°C"),
        ("power_w", 1.0, "W"),
    ):
        value = highest(summary.run.records, key)
        if value is not None:
            yield f"{value * scale:.0f} {unit}"
