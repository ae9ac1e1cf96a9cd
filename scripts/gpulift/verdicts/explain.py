"""From windows to a verdict, step by step; pure functions of launches and a verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpulift.ground import steps, text
from gpulift.ground.steps import step
from gpulift.records.model import Record
from gpulift.records.throttle import Throttle, throttle_of
from gpulift.verdicts import decision, stats
from gpulift.verdicts.comparison import OVER_BASELINE, Launch, values
from gpulift.verdicts.decision import Verdict, at_least, percent

LARGEST_LOG = 700.0  # of what exp() can do; a foreign record may claim any amount of work
MOST = 2 / 3  # of a change that one cause must hold to be named as the cause
DEVICE, ISSUING, ELSEWHERE = (
    "the device's work",
    "issuing work on the host",
    "the host, outside issuing",
)
CODE = "the code"
SHAPE = "the code or the shape that each run chose"
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
    base_throttle: Throttle
    head_throttle: Throttle
    cause: str = ""

    @property
    def lines(self) -> list[str]:
        """For people, the cause last."""
        lines = [f"{one.name}: {one.shown}" for one in self.measures]
        for name, seen in (("base", self.base_throttle), ("head", self.head_throttle)):
            lines.append(f"throttle in {name}: {seen.words}")
        return [*lines, self.cause] if self.cause else lines

    @property
    def data(self) -> dict[str, Any]:
        """For programs; a ratio is head over base."""
        return {
            "cause": self.cause,
            "measures": [
                {
                    "name": one.name,
                    "unit": one.unit,
                    "base": one.base,
                    "head": one.head,
                    "ratio": one.head / one.base,
                }
                for one in self.measures
            ],
            "throttle": {"base": self.base_throttle.data, "head": self.head_throttle.data},
        }


def explain(
    base: Sequence[Launch], head: Sequence[Launch], verdict: Verdict, unit: str = "launch"
) -> list[str]:
    """The path of one verdict of `compare`: launches, what is compared, and so on."""
    sides = (("base", base), ("head", head))
    lines = [
        launch_line(f"{side} launch {one.record.launch}", one)
        for side, launches in sides
        for one in launches
    ]
    if base and head:
        lines.append(_unit_line(base, head, unit))
    return path_to(verdict, lines, attribution(base, head, verdict))


def path_to(verdict: Verdict, launches: Iterable[str], attributed: Attribution | None) -> list[str]:
    """What --explain shows of a verdict, behind the lines about its launches; also for a gate.

    Each line begins with its section of METHOD.md.
    """
    lines = [*launches, *_to_verdict(verdict)]
    if verdict.smallest_effect is not None:
        seen = f"changes of {at_least(verdict.smallest_effect)} would have been seen"
        lines.append(step(steps.SMALLEST_EFFECT, f"{seen} with {percent(decision.POWER)} power"))
    causes = attributed.lines if attributed else ()
    return [*lines, *(step(steps.ATTRIBUTION, line) for line in causes)]


def _to_verdict(verdict: Verdict) -> Iterable[str]:
    """The path, and at its end the verdict, with its reason where no other line has it."""
    end, reason = step(steps.VERDICT, verdict.verdict), verdict.reason
    path = [line for line in verdict.path if line != end]
    yield from path
    if verdict.smallest_effect is None and reason and not any(reason in line for line in path):
        yield f"{end}: {reason}"
    elif not any(line.startswith(end) for line in path):
        yield end


def attribution(
    base: Sequence[Launch], head: Sequence[Launch], verdict: Verdict
) -> Attribution | None:
    """Both sides beside each other, and the cause of a change; None where a side is missing.

    A slower clock is told from slower code by cycles; the device from the host by its own time.
    """
    if not base or not head or base[0].over_baseline is not None:
        return None  # the latter: their times are not of equal work
    alike = _of_one_size((*base, *head))
    measures = [
        Measured(name, unit, before, after, _beside(shown, before, after))
        for name, unit, measure, shown in MEASURES
        if alike or not name.endswith(OF_A_STEP)
        if (before := _typical(base, measure)) and (after := _typical(head, measure))
    ]
    changed = verdict.verdict in (decision.REGRESSED, decision.IMPROVED)
    return Attribution(
        tuple(measures),
        throttle_of([one.record for one in base]),
        throttle_of([one.record for one in head]),
        _cause(base, head) if changed else "",
    )


def _of_one_size(launches: Sequence[Launch]) -> bool:
    """Whether a step of all of them has as much work: a ceiling chooses its shape in each run."""
    return len({one.work for one in launches}) == 1


def _beside(shown: Callable[[float], str], base: float, head: float) -> str:
    return f"{shown(base)} in base, {shown(head)} in head ({percent(head / base - 1)})"


def sm_clock_hz(launch: Launch) -> float | None:
    """Median over the launch's windows; None where no clock was read."""
    return stats.median_over(launch.arm.windows.sm_clock_hz)


def launch_line(name: str, launch: Launch) -> str:
    """What the value of a launch stands on; `name` says which launch of which side it is."""
    record, arm = launch.record, launch.arm
    order = record.order.blocks if record.order else ()
    clock = sm_clock_hz(launch)
    parts = [
        f"median step {text.seconds(launch.step_s)} by the {arm.clock} clock",
        f"{len(arm.window_s)} windows of {arm.steps_per_window} steps in {len(order)} blocks"
        + (f" ({record.discarded_blocks} discarded)" if record.discarded_blocks else ""),
        "SM clock not read" if clock is None else f"SM clock {_mhz(clock)}",
        f"throttle {throttle_of([record]).words}",
        _check(launch),
    ]
    return step(steps.LAUNCH_VALUE, f"{name} ({place(record)}): {'; '.join(parts)}")


def place(record: Record) -> str:
    """How to cite a record, and where it is."""
    return f"{record.citation}, {record.file}:{record.line}"


def launch_data(launch: Launch) -> dict[str, Any]:
    """The same as the line of a launch for programs; what is unknown is None."""
    record, arm = launch.record, launch.arm
    return {
        **record_data(record),
        "step_s": launch.step_s,
        "windows": len(arm.window_s),
        "steps_per_window": arm.steps_per_window,
        "blocks": len(record.order.blocks) if record.order else 0,
        "clock": arm.clock,
        "sm_clock_hz": sm_clock_hz(launch),
        "throttle": throttle_of([record]).data,
        "check_error": arm.check_error,
        "check_tolerance": arm.check_tolerance,
    }


def run_launch_data(launch: Launch) -> dict[str, Any]:
    """The same of a launch of a run, and which one it is."""
    return {
        "run": Path(launch.run).name,
        "launch": launch.record.launch,
        "card": launch.card,
        **launch_data(launch),
    }


def record_data(record: Record) -> dict[str, Any]:
    """Which record it is, where it is in its run, and what was discarded in it."""
    return {
        "record": record.id,
        "citation": record.citation,
        "file": record.file.name,
        "line": record.line,
        "discarded_blocks": record.discarded_blocks,
    }


def _check(launch: Launch) -> str:
    error, tolerance = launch.arm.check_error, launch.arm.check_tolerance
    if error is None:
        return "not checked"
    allowed = "" if tolerance is None else f" of {tolerance:.2g} allowed"
    return f"check error {error:.2g}{allowed}"


def sides(base: Sequence[Launch], change: float, unit: str = "launch") -> tuple[str, str]:
    """What is compared of base and head: the typical value of the base, and by the change (0.1: a
    tenth more time) that of the head, so that the three never contradict each other."""
    logs, shown = values(base, unit), _reading(base[0])
    typical = sum(logs) / len(logs)
    return shown(typical), shown(typical + math.log1p(change))


def _unit_line(base: Sequence[Launch], head: Sequence[Launch], unit: str) -> str:
    """The values that are compared, from their logarithms."""
    shown = _reading(base[0])
    before, after = (", ".join(map(shown, values(side, unit))) for side in (base, head))
    said = f"one value per {unit}: base {before}; head {after} ({_meaning(base[0])})"
    return step(steps.INDEPENDENT, said)


def _reading(launch: Launch) -> Callable[[float], str]:
    """How people read a launch value, which is a logarithm."""
    if launch.over_baseline is not None:
        return lambda log: text.digits(_exp(log))
    if launch.unit_of_work == "step":
        return lambda log: text.seconds(_exp(log))
    unit = "FLOP/s" if launch.unit_of_work == "operation" else "B/s"
    return lambda log: text.rate(_exp(-log), unit)


def _exp(log: float) -> float:
    return math.exp(min(log, LARGEST_LOG))


def _meaning(launch: Launch) -> str:
    unit = launch.unit_of_work
    if launch.over_baseline is not None:
        return OVER_BASELINE
    if unit == "step":
        return "times of a step"
    return f"by the time of one {unit}, since a ceiling chooses the shape of its step"


def _cause(base: Sequence[Launch], head: Sequence[Launch]) -> str:
    """One sentence on where a change lies; empty where records cannot tell."""
    time = _log_ratio(base, head, lambda one: one.step_s / one.work)
    if time is None or time == 0:
        return ""
    if not any(one.arm.may_wait_for_host for one in (*base, *head)):
        cycles = _log_ratio(base, head, _cycles_of_work)
        alike = _of_one_size((*base, *head))
        return "" if cycles is None else _clock_or_code(time, cycles, CODE if alike else SHAPE)
    return _host_or_device(base, head) if _of_one_size((*base, *head)) else ""


def _clock_or_code(time: float, cycles: float, code: str) -> str:
    shares = f"of {percent(math.expm1(time))} in time, {percent(math.expm1(cycles))} is in cycles"
    share = cycles / time
    if share >= MOST:
        return f"{code}: {shares}"
    if share <= 1 - MOST:
        return f"the clock, not the code: {shares}"
    return f"{code.removeprefix('the ')} and clock: {shares}"


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


def _cycles_of_work(launch: Launch) -> float | None:
    cycles = _cycles(launch)
    return None if cycles is None else cycles / launch.work


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


OF_A_STEP = ("of a step", "issuing a step (enqueue)", "of a step in its calls")
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
