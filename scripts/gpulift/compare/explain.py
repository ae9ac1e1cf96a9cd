"""From windows to a verdict, step by step; pure functions of launches and a verdict.

Each line starts with the section of METHOD.md that it belongs to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gpulift import decision, stats, text
from gpulift.compare.judge import Launch
from gpulift.decision import Verdict, percent

MOST = 2 / 3  # of a change that one cause must hold to be named as the cause
DEVICE, ISSUING, ELSEWHERE = (
    "the device's work",
    "issuing work on the host",
    "the host, outside issuing",
)
PACED = 0.9  # share of a step's time in its own calls from which on the host sets the pace

Measure = Callable[[Launch], "float | None"]


@dataclass(frozen=True)
class Measured:
    """One measure on both sides, in SI base units, and how people read it."""

    name: str
    unit: str
    base: float
    head: float
    shown: str


@dataclass(frozen=True)
class Attribution:
    """Both sides beside each other and, of a change, the cause that records can tell."""

    measures: tuple[Measured, ...]
    base_throttle: tuple[str, ...]
    head_throttle: tuple[str, ...]
    cause: str = ""

    @property
    def lines(self) -> list[str]:
        """For people, the cause last."""
        lines = [f"{one.name}: {one.shown}" for one in self.measures]
        for name, seen in (("base", self.base_throttle), ("head", self.head_throttle)):
            lines.append(f"throttle in {name}: {', '.join(seen) or 'none seen'}")
        return [*lines, self.cause] if self.cause else lines


def explain(base: Sequence[Launch], head: Sequence[Launch], verdict: Verdict) -> list[str]:
    """The path of one verdict: launches, family, equivalence, smallest effect, attribution."""
    lines = [_launch_line("base", launch) for launch in base]
    lines += [_launch_line("head", launch) for launch in head]
    lines += [_section(line) for line in verdict.path]
    if verdict.smallest_effect is not None:
        lines.append(
            f"Smallest effect: a change of {percent(verdict.smallest_effect)} would have been seen"
            " with 90 % power"
        )
    if verdict.reason:
        lines.append(f"Reason: {verdict.reason}")
    found = attribution(base, head, verdict)
    return lines + [f"Attribution: {line}" for line in (found.lines if found else ())]


def attribution(
    base: Sequence[Launch], head: Sequence[Launch], verdict: Verdict
) -> Attribution | None:
    """Both sides beside each other, and the cause of a change; None where a side is missing.

    A slower clock is told from slower code by cycles; the device from the host by its own time.
    """
    if not base or not head:
        return None
    measures = [
        Measured(name, unit, before, after, _beside(shown, before, after))
        for name, unit, measure, shown in MEASURES
        if (before := _typical(base, measure)) and (after := _typical(head, measure))
    ]
    changed = verdict.verdict in (decision.REGRESSED, decision.IMPROVED)
    return Attribution(
        tuple(measures),
        tuple(throttle(base)),
        tuple(throttle(head)),
        _cause(base, head) if changed else "",
    )


def _beside(shown: Callable[[float], str], base: float, head: float) -> str:
    return f"{shown(base)} in base, {shown(head)} in head ({percent(head / base - 1)})"


def throttle(launches: Sequence[Launch]) -> list[str]:
    """What held the clock down in any of the launches."""
    seen = [one.record.telemetry for one in launches]
    return sorted({reason for telemetry in seen if telemetry for reason in telemetry.throttle})


def sm_clock_hz(launch: Launch) -> float | None:
    """Median over the launch's windows; None where no clock was read."""
    return stats.median_over(launch.arm.windows.sm_clock_hz)


def _launch_line(side: str, launch: Launch) -> str:
    record, arm = launch.record, launch.arm
    order = record.order.blocks if record.order else ()
    clock = sm_clock_hz(launch)
    parts = [
        f"median step {text.seconds(launch.step_s)} by the {arm.clock} clock",
        f"{len(arm.window_s)} windows of {arm.steps_per_window} steps in {len(order)} blocks"
        + (f" ({record.discarded_blocks} discarded)" if record.discarded_blocks else ""),
        "SM clock not read" if clock is None else f"SM clock {_mhz(clock)}",
        f"throttle {', '.join(throttle([launch])) or 'none'}",
        _check(launch),
    ]
    return (
        f"Launch value: {side} launch {record.launch} ({record.citation},"
        f" {record.file}:{record.line}): {'; '.join(parts)}"
    )


def _check(launch: Launch) -> str:
    error, tolerance = launch.arm.check_error, launch.arm.check_tolerance
    if error is None:
        return "not checked"
    allowed = "" if tolerance is None else f" of {tolerance:.2g} allowed"
    return f"check error {error:.2g}{allowed}"


def unit_line(unit: str, base: Sequence[float], head: Sequence[float]) -> str:
    """The values that are compared, from their logarithms."""
    sides = [", ".join(text.seconds(math.exp(one)) for one in side) for side in (base, head)]
    return f"Independent launches: one value per {unit}: base {sides[0]}; head {sides[1]}"


def _section(line: str) -> str:
    """Decisions name launches; METHOD.md has a section for how they are used."""
    return line.replace("Launches: ", "Independent launches: ", 1)


def _cause(base: Sequence[Launch], head: Sequence[Launch]) -> str:
    """One sentence on where a change lies; empty where records cannot tell."""
    time = _log_ratio(base, head, _step_s)
    if time is None or time == 0:
        return ""
    if not any(one.arm.may_wait_for_host for one in (*base, *head)):
        cycles = _log_ratio(base, head, _cycles)
        return "" if cycles is None else _clock_or_code(time, cycles)
    return _host_or_device(base, head)


def _clock_or_code(time: float, cycles: float) -> str:
    shares = f"of {percent(math.expm1(time))} in time, {percent(math.expm1(cycles))} is in cycles"
    code = cycles / time
    if code >= MOST:
        return f"the code: {shares}"
    if code <= 1 - MOST:
        return f"the clock, not the code: {shares}"
    return f"code and clock: {shares}"


def _host_or_device(base: Sequence[Launch], head: Sequence[Launch]) -> str:
    change = _step_change(base, head, _step_s)
    if change is None or change == 0:
        return ""
    issue = _step_change(base, head, _enqueue_s)
    device = _step_change(base, head, _device_s)
    took = f"a step takes {_signed(change)}"
    if not any(one.arm.windows.device_s for one in (*base, *head)):
        return f"the host's work: {took}, and no device took part"
    parts = (("the device", device), ("issuing", issue))
    told = [f"{name} {_signed(part)}" for name, part in parts if part is not None]
    if not told:
        return ""
    causes = [
        name
        for name, part in ((DEVICE, device), (ISSUING, issue))
        if part is not None and part / change >= MOST
    ]
    paces = [_typical(side, _issuing_share) for side in (base, head)]
    shares = f"{took}: {', '.join(told)}"
    if paces[0] is not None and paces[1] is not None:
        before, after = (text.percent(pace) for pace in paces)
        shares += f"; its calls fill {before} of it in base, {after} in head"
        # The device's time has the waits for the host in it: it follows where the host sets a pace.
        if len(causes) > 1 and (paces[0] >= PACED) != (paces[1] >= PACED):
            causes = [ISSUING]
    return f"{' or '.join(causes) or ELSEWHERE}: {shares}"


def _signed(value_s: float) -> str:
    return f"{'+' if value_s >= 0 else '-'}{text.seconds(abs(value_s))}"


def _step_change(base: Sequence[Launch], head: Sequence[Launch], measure: Measure) -> float | None:
    before, after = _typical(base, measure), _typical(head, measure)
    return None if before is None or after is None else after - before


def _log_ratio(base: Sequence[Launch], head: Sequence[Launch], measure: Measure) -> float | None:
    before, after = _typical(base, measure), _typical(head, measure)
    return math.log(after / before) if before and after else None


def _typical(launches: Sequence[Launch], measure: Measure) -> float | None:
    """Geometric mean over launches; None unless every launch has the measure."""
    found = [measure(one) for one in launches]
    known = [value for value in found if value is not None and value > 0]
    if not known or len(known) != len(found):
        return None
    return float(np.exp(np.mean(np.log(known))))


def _step_s(launch: Launch) -> float | None:
    return launch.step_s


def _cycles(launch: Launch) -> float | None:
    cycles = stats.step_cycles(launch.arm)
    return None if cycles is None or not cycles.size else float(np.median(cycles))


def _device_s(launch: Launch) -> float | None:
    return _per_step(launch, launch.arm.windows.device_s)


def _host_s(launch: Launch) -> float | None:
    return _per_step(launch, launch.arm.windows.host_s)


def _enqueue_s(launch: Launch) -> float | None:
    return _per_step(launch, launch.arm.windows.enqueue_s)


def _per_step(launch: Launch, windows: Sequence[float]) -> float | None:
    middle = stats.median_over(windows)
    return None if middle is None else middle / launch.arm.steps_per_window


def _issuing_share(launch: Launch) -> float | None:
    """Of a step's time, what the host spends in its calls; None where a hold keeps it out."""
    issue, host = _enqueue_s(launch), _host_s(launch)
    if not launch.arm.may_wait_for_host or not issue or not host or _device_s(launch) is None:
        return None
    return issue / host


def _bytes_per_s(launch: Launch) -> float | None:
    cost = launch.arm.cost
    return cost.bytes / launch.step_s if cost else None


def _flops_per_s(launch: Launch) -> float | None:
    cost = launch.arm.cost
    return cost.flops / launch.step_s if cost else None


def _median_of(key: str) -> Measure:
    def measure(launch: Launch) -> float | None:
        telemetry = launch.record.telemetry
        found = telemetry.ranges.get(key) if telemetry else None
        return found.median if found else None

    return measure


def _mhz(value: float) -> str:
    return f"{value / 1e6:.0f} MHz"


def _byte_rate(value: float) -> str:
    return text.rate(value, "B/s")


def _arithmetic_rate(value: float) -> str:
    return text.rate(value, "FLOP/s")


def _cycles_text(value: float) -> str:
    return f"{text.digits(value)} cycles"


def _watts(value: float) -> str:
    return f"{value:.0f} W"


def _degrees(value: float) -> str:
    return f"{value:.0f} °C"


MEASURES: tuple[tuple[str, str, Measure, Callable[[float], str]], ...] = (
    ("time of a step", "s", _step_s, text.seconds),
    ("SM clock cycles of a step", "cycles", _cycles, _cycles_text),
    ("SM clock", "Hz", sm_clock_hz, _mhz),
    ("device time of a step", "s", _device_s, text.seconds),
    ("host time of a step", "s", _host_s, text.seconds),
    ("issuing a step (enqueue)", "s", _enqueue_s, text.seconds),
    ("share of a step in its calls", "1", _issuing_share, text.percent),
    ("bytes that a step needs, over its time", "B/s", _bytes_per_s, _byte_rate),
    ("arithmetic that a step needs, over its time", "FLOP/s", _flops_per_s, _arithmetic_rate),
    ("power of the case", "W", _median_of("power_w"), _watts),
    ("temperature of the case", "°C", _median_of("temperature_c"), _degrees),
)
