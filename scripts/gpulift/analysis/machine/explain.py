"""From windows to the verdict on a check: lines for people, the same for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from gpulift.analysis.machine.checks import INTEGRITY_CHECK
from gpulift.analysis.machine.results import WORTH_FAILING, Check, CheckResult, Position
from gpulift.analysis.machine.tables import quantity
from gpulift.analysis.reference import Conditions, Measured, Peak
from gpulift.ground import steps, text
from gpulift.ground.estimate import Estimate
from gpulift.ground.steps import step
from gpulift.verdicts.comparison import Launch
from gpulift.verdicts.decision import percent
from gpulift.verdicts.explain import launch_line, run_launch_data


def steps_of(result: CheckResult) -> list[str]:
    """The whole path of a check; each line begins with its section of METHOD.md."""
    return [*_measured(result), *_held_against(result), *_among_siblings(result), *_end(result)]


def as_data(result: CheckResult) -> dict[str, Any]:
    """All of it for programs, in SI base units; unknown is null, shares are fractions."""
    plain = asdict(replace(result, check=None, positions=()))
    del plain["check"], plain["positions"]
    if result.check:
        plain["launch_values"] = list(result.check.launch_values)
        plain["measured_launches"] = [run_launch_data(launch) for launch in _launches(result.check)]
    if result.positions:
        plain["standings"] = [position_data(position) for position in result.positions]
    return plain


def _measured(result: CheckResult) -> Iterator[str]:
    if result.check:
        yield from _launch_lines(result.check)
    if result.estimate:
        yield step(steps.QUALIFICATION, _estimate(result.estimate, result.unit))


def _launch_lines(check: Check) -> Iterator[str]:
    """Each launch as `compare` shows it, then what its step comes to in the check's unit."""
    for launch in _launches(check):
        yield launch_line(f"measured launch {launch.record.launch}", launch)
    values = ", ".join(quantity(value, check.unit) for value in check.launch_values)
    yield step(steps.LAUNCH_VALUE, f"one value per launch: {values} ({_meaning(check)})")


def _launches(check: Check | None) -> list[Launch]:
    records = check.records if check else ()
    arms = ((record, record.arm(check.arm if check else "")) for record in records)
    return [Launch(str(record.file.parent), record, arm) for record, arm in arms if arm]


def _meaning(check: Check) -> str:
    if check.unit == "s":
        return "median time of a step" + ("" if check.work == 1 else " / its items")
    return f"{'bytes' if check.unit == 'B/s' else 'operations'} of a step / its median time"


def _estimate(estimate: Estimate, unit: str) -> str:
    count = text.counted(estimate.launches, "launch", "launches")
    said = f"measured {quantity(estimate.value, unit)} over {count}"
    if estimate.low is None or estimate.high is None:
        return f"{said}, no interval"
    of = " of the windows of this launch alone" if estimate.one_launch else ""
    ends = f"{quantity(estimate.low, unit)} to {quantity(estimate.high, unit)}"
    return f"{said}, {100 * estimate.confidence:.3g} % interval {ends}{of}"


def _held_against(result: CheckResult) -> Iterator[str]:
    """The limit, and all that is known of where it is from."""
    if result.limit is not None:
        yield step(_section(result), _limit(result))
    entry = result.reference
    if isinstance(entry, Measured):
        yield from _measured_entry(result, entry)
    elif isinstance(entry, Peak):
        said = "; ".join(part for part in (entry.meaning, entry.source, entry.date) if part)
        yield step(steps.COMPUTED_PEAKS, f"datasheet's peak: {said}")
    if result.fraction is not None:
        share = text.percent(result.fraction)
        yield step(steps.QUALIFICATION, f"measured is {share} of what it is held against")
    if result.smallest_effect is not None:
        effect = percent(result.smallest_effect)
        said = f"smallest deviation that would surely have failed: {effect}"
        yield step(steps.QUALIFICATION, said)


def _limit(result: CheckResult) -> str:
    limit = "" if result.limit is None else f"limit {quantity(result.limit, result.unit)}"
    if result.against is None or result.limit is None:
        return f"{limit}, from: {result.kind}"
    held = quantity(result.against, result.unit)
    if isinstance(result.reference, Measured) and result.tolerance is not None:
        sign = "-" if result.limit < result.against else "+"
        return f"{limit}: {held} of the reference x (1 {sign} {percent(result.tolerance)})"
    return f"{limit}: {percent(result.limit / result.against)} of the {result.kind} of {held}"


def _measured_entry(result: CheckResult, entry: Measured) -> Iterator[str]:
    behind = [text.counted(result.cards, "card")] if result.cards else []
    behind += [f"{entry.launches} launches", f"of {entry.date}"]
    allowed = f"tolerance {percent(entry.tolerance)} (from: {entry.tolerance_from})"
    if not entry.judges:
        allowed += ", so that it informs and judges none"
    value = quantity(entry.value, entry.unit)
    yield step(steps.QUALIFICATION, f"reference {value}: {', '.join(behind)}; {allowed}")
    yield step(steps.QUALIFICATION, f"conditions of the reference: {_conditions(entry.conditions)}")
    yield step(steps.QUALIFICATION, f"sources of the reference: {entry.source}")


def _conditions(conditions: Conditions) -> str:
    limit = None if conditions.power_limit_w is None else f"{conditions.power_limit_w:.0f} W"
    named = (
        ("method", conditions.method),
        ("driver", conditions.driver),
        ("CUDA", conditions.cuda_runtime),
        ("power limit", limit),
        ("commit", conditions.commit),
        ("host", conditions.host),
    )
    return ", ".join(f"{name} {value}" for name, value in named if value)


def _among_siblings(result: CheckResult) -> Iterator[str]:
    for position in result.positions:
        rate = position.rate
        if rate.measured:
            yield from _launch_lines(rate.measured)
        yield step(
            steps.SIBLINGS,
            f"{rate.check} {rate.setting}: {quantity(rate.value, rate.unit)}"
            f" against a median of {quantity(position.median, rate.unit)} over the cards:"
            f" {100 * position.deviation:+.2f} %, {position.distance:+.1f} robust standard"
            " deviations; of its interval the end nearest the median is"
            f" {100 * position.nearest_deviation:+.2f} % off"
            f"{': an outlier' if position.outlier else ''}",
        )
    if result.positions:
        leasts = [position.limits.least for position in result.positions]
        off = " to ".join(percent(least) for least in sorted({min(leasts), max(leasts)}))
        yield step(
            steps.SIBLINGS,
            f"an outlier is more than {result.positions[0].limits.far:.2g} deviations and its whole"
            f" interval more than {off} off, and fails where a roof is more than"
            f" {percent(WORTH_FAILING)} below",
        )


def position_data(position: Position) -> dict[str, Any]:
    """A card beside its siblings in one check; shares are fractions."""
    rate, check = position.rate, position.rate.measured
    return {
        "card": rate.name,
        **{key: getattr(rate, key) for key in ("check", "setting", "value", "unit")},
        **{key: getattr(position, key) for key in ("median", "distance", "nearest")},
        "higher_is_better": rate.higher_is_better,
        **asdict(position.limits),
        "deviation": position.deviation,
        "outlier": position.outlier,
        "launch_values": list(check.launch_values) if check else [],
        "measured_launches": [run_launch_data(launch) for launch in _launches(check)],
    }


def _end(result: CheckResult) -> Iterator[str]:
    section = _section(result)
    reason = f": {result.reason}" if result.reason else ""
    yield step(section, f"{result.verdict}{reason}")
    if result.remedy:
        yield step(section, f"remedy: {result.remedy}")


def _section(result: CheckResult) -> str:
    """Where METHOD.md has the rule that gave the verdict."""
    if result.id.startswith("siblings/") or result.kind in ("pairs", "ranks"):
        return steps.SIBLINGS
    if result.id.startswith(INTEGRITY_CHECK):
        return steps.INTEGRITY
    if result.id.startswith("health/"):
        return steps.HEALTH
    return steps.COMPUTED_PEAKS if result.kind.endswith("peak") else steps.QUALIFICATION
