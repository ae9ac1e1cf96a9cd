"""A GPU in one line: its rates, and the most that was seen of its clock, heat and power."""

from __future__ import annotations

from collections.abc import Iterator

from gpulift.analysis.summary import Roof, Summary, highest
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
        f"at most {', '.join(seen)}" if (seen := list(_highest(summary))) else "",
        f"clock held down: {throttle_of(watched).words}" if watched else "",
    ]
    return f"GPU {gpu.card}: {'; '.join(filter(None, parts)) or 'nothing was measured of it'}"


def _rates(summary: Summary) -> Iterator[str]:
    for name, short in ROOFS.items():
        found = {roof.regime: _rate(roof) for roof in summary.roofs if roof.name == name}
        sustained = found.pop("sustained", "")
        rates = [*found.values(), *([f"{sustained} sustained"] if sustained else [])]
        if rates:
            yield f"{short} {', '.join(rates)}"


def _rate(roof: Roof) -> str:
    return text.rate(roof.rate.value, roof.unit)


def _highest(summary: Summary) -> Iterator[str]:
    for key, scale, unit in (
        ("sm_clock_hz", 1e-6, "MHz"),
        ("temperature_c", 1.0, "°C"),
        ("power_w", 1.0, "W"),
    ):
        value = highest(summary.run.records, key)
        if value is not None:
            yield f"{value * scale:.0f} {unit}"
