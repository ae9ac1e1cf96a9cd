"""A record for people: what was measured, each arm with its windows, and the conditions."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from gpulift.analysis import arms, conditions
from gpulift.analysis.bounds import bound_of
from gpulift.analysis.errata import Erratum
from gpulift.engine.again import command_again
from gpulift.ground import terminal, text
from gpulift.ground.text import visible
from gpulift.records.model import IMPORT, Arm, HostLoad, Range, Record, Telemetry
from gpulift.records.throttle import throttle_of
from gpulift.verdicts import stats
from gpulift.verdicts.stats import ONE_LAUNCH_CONFIDENCE

LABEL = 15  # columns of the names before the values
# By the last part of a telemetry key: factor and unit of what is shown.
UNITS = {"hz": (1e-6, " MHz"), "w": (1.0, " W"), "c": (1.0, " °C"), "utilisation": (100.0, " %")}
INTERVALS = (
    f"Intervals ({100 * ONE_LAUNCH_CONFIDENCE:g} %) are of this launch's windows and blocks,"
    " without what launches differ by."
)

Fact = tuple[str, str]


def lines(
    record: Record,
    width: int = terminal.PIPED,
    errata: Sequence[Erratum] = (),
    launches: Sequence[Record] = (),
) -> list[str]:
    """The whole record, with its errata and what all launches of its case say, in lines of that
    width, but for what is copied from them and for words that are longer; nothing in it is obeyed
    by a terminal."""
    facts = partial(_facts, width)
    shown = [record.citation, *facts(_subject(record))]
    for one in errata:
        head = textwrap.wrap(f"Known error {one.name}: {visible(one.short)}", width)
        shown += ["", *head, *facts(_erratum(one))]
    for arm in record.arms:
        role = "control" if record.is_control(arm.name) else arm.role
        shown += ["", f"Arm {visible(arm.name)} ({role})", *facts(_arm(record, arm, launches))]
    if record.arms:
        shown += ["", *textwrap.wrap(INTERVALS, width)]
    shown += ["", "Telemetry of the case: median [least to most]", *facts(_telemetry(record))]
    shown += ["", "Conditions", *facts(_conditions(record))]
    if record.kind == IMPORT:
        said = record.raw.get("imported", {})
        return [*shown, "", "What the other tool said, word for word", *facts(_imported(said))]
    again = textwrap.wrap(_how_again(record), width)
    return [*shown, "", *again, f"  {visible(command_again(record))}"]


def _erratum(one: Erratum) -> Iterator[Fact]:
    yield "records", one.records
    yield "what is wrong", one.wrong
    yield "later records", one.later


def _subject(record: Record) -> Iterator[Fact]:
    yield "technique", record.technique
    yield "kind", record.kind if record.kind != "technique" else ""
    yield "arm", record.duet_arm
    yield "case", record.case_id
    yield "", "(of no sweep: --axis asked for it)" if record.off_sweep else ""
    yield "question", record.question
    yield "launch", f"{record.launch + 1} of {record.launches}, {record.pace} regime"
    yield "outcome", record.outcome
    yield "planted", conditions.planted(record)
    yield "reason", record.reason
    yield "remedy", record.remedy
    yield "check", record.check_meaning
    yield "caches", record.caches
    yield "ended", _ending(record)
    yield "host load", _host_load(record.host_load)
    for name, value in record.notes.items():
        yield f"note {name}", value
    yield "file", f"{record.file}:{record.line}"


def _ending(record: Record) -> str:
    stop = record.stop
    if stop is None:
        return ""
    planned = "" if stop.planned_blocks is None else f" of {stop.planned_blocks} planned"
    parts = [f"{stop.reason} after {stop.blocks} blocks{planned}"]
    parts.append(f"{record.discarded_blocks} blocks discarded" if record.discarded_blocks else "")
    parts.append(f"{record.restarts} restarts" if record.restarts else "")
    parts.append("each arm visited twice" if record.order and record.order.visits else "")
    if stop.dropped_visits:
        parts.append(f"{stop.dropped_visits} blocks of visits replaced: an effect below 2 %")
    if stop.reached_half_width is not None:
        parts.append(f"half-width {100 * stop.reached_half_width:.2f} %")
    if stop.asked_half_width is not None:
        parts.append(f"{100 * stop.asked_half_width:.2f} % asked for")
    return ", ".join(part for part in parts if part)


def _host_load(load: HostLoad | None) -> str:
    if load is None:
        return ""
    shown = f"{load.own_cores:.1f} cores busy with the case, {load.other_cores:.1f} with others"
    stolen = f", {load.stolen_cores:.1f} taken by other machines" if load.stolen_cores else ""
    return shown + stolen


def _arm(record: Record, arm: Arm, launches: Sequence[Record]) -> Iterator[Fact]:
    if arm.outcome != "ok":
        yield "outcome", arm.outcome
    yield "reason", arm.reason
    yield "remedy", arm.remedy
    time = arms.step_time(record, arm)
    if not time:
        return
    held = ", held" if arm.held else ""
    yield "step time", f"{time}, median window of this launch by the {arm.clock} clock{held}"
    yield "speedup", _speedup(record, arm)
    if len(launches) > 1:
        over = (arms.step_time(record, arm, launches), _speedup(record, arm, launches))
        yield f"of {len(launches)} launches", ", ".join(filter(None, over))
    yield "bound by", bound_of([record], arm.name).shown
    yield "rate", ", ".join(arms.rates(record, arm))
    yield "CPU time", arms.cpu(record, arm)
    yield "energy", _energy(record, arm)
    yield "check", arms.check(arm)
    yield "memory", _memory(arm)
    yield "ranks", str(arm.ranks) if arm.ranks > 1 else ""
    yield "environment", conditions.pairs(arm.environment)
    yield "precondition", _precondition(arm)
    yield (
        "metrics",
        ", ".join(f"{name} {arms.metric(name, of)}" for name, of in arm.metrics.items()),
    )
    yield "SM clock", _clock(arm)
    factor, unit = arms.time_unit(float(stats.step_times(arm).min()))
    yield (
        "windows",
        f"{len(arm.window_s)} of {arm.steps_per_window} steps; {unit} of a step in each:",
    )
    steps = stats.step_times(arm) / factor
    yield "", " ".join(text.digits(float(step), arms.TIME_DIGITS) for step in steps)


def _speedup(record: Record, arm: Arm, launches: Sequence[Record] = ()) -> str:
    baseline, shown = arms.baseline_of(record), arms.speedup(record, arm, launches)
    return f"{shown} against {baseline.name}" if baseline and shown else ""


def _energy(record: Record, arm: Arm) -> str:
    parts = [arms.energy(record, arm), arms.energy_of_baseline(record, arm)]
    return ", ".join(part for part in parts if part)


def _precondition(arm: Arm) -> str:
    required = arm.precondition
    if required is None:
        return ""
    seen = "" if required.worst is None else f"{text.digits(required.worst)} at worst, "
    return f"{required.name}: {seen}at most {text.digits(required.most)} allowed"


def _memory(arm: Arm) -> str:
    known = {
        "device": arm.peak_device_bytes,
        "pinned": arm.peak_pinned_bytes,
        "host": arm.peak_host_bytes,
    }
    return ", ".join(f"{name} {text.size(size)}" for name, size in known.items() if size)


def _clock(arm: Arm) -> str:
    clocks = arm.windows.sm_clock_hz
    middle = stats.median_over(clocks)
    if middle is None:
        return ""
    return _range("sm_clock_hz", Range(min(clocks), middle, max(clocks)))


def _telemetry(record: Record) -> Iterator[Fact]:
    telemetry = record.telemetry
    if telemetry is None:
        yield "none", record.telemetry_missing or "the record holds none"
        return
    every = (
        "" if telemetry.interval_s is None else f", one each {text.seconds(telemetry.interval_s)}"
    )
    yield "samples", f"{telemetry.samples}{every}"
    for key, found in telemetry.ranges.items():
        yield _range_name(key), _range(key, found)
    yield "throttle", throttle_of([record]).words
    yield "other", _other_telemetry(telemetry)
    for number, other in enumerate(record.telemetry_others, start=1):
        ranges = [f"{_range_name(key)} {_range(key, found)}" for key, found in other.ranges.items()]
        yield f"GPU {number}", ", ".join([*ranges, _other_telemetry(other)]).removesuffix(", ")


def _other_telemetry(telemetry: Telemetry) -> str:
    parts = []
    if telemetry.energy_j is not None:
        parts.append(f"energy {text.digits(telemetry.energy_j)} J")
    if telemetry.temperature_slope_c_per_s is not None:
        parts.append(f"temperature {telemetry.temperature_slope_c_per_s:+.2g} °C/s")
    if telemetry.pcie_generation is not None and telemetry.pcie_width is not None:
        parts.append(f"PCIe {telemetry.pcie_generation}.0 x{telemetry.pcie_width}")
    return ", ".join(parts)


def _range_name(key: str) -> str:
    stem, _, unit = key.rpartition("_")
    name = stem if stem and unit in ("hz", "w", "c") else key
    return name.replace("_", " ").replace("sm clock", "SM clock")


def _range(key: str, found: Range) -> str:
    factor, unit = UNITS.get(key.rpartition("_")[2], (1.0, ""))
    low, middle, high = (text.digits(factor * v) for v in (found.min, found.median, found.max))
    return f"{middle}{unit}" if low == high else f"{middle}{unit} [{low} to {high}]"


def _conditions(record: Record) -> Iterator[Fact]:
    context = record.context
    yield "card", conditions.card(context)
    for number, gpu in enumerate(context.gpus[1:], start=1):
        yield f"GPU {number}", ", ".join([gpu.name, f"card {gpu.card}" if gpu.card else "no card"])
    yield "software", conditions.software(context)
    yield "libraries", conditions.pairs(context.versions)
    yield "disk", conditions.disk(context)
    yield "host", conditions.host(context)
    yield "commit", conditions.commit(context.build)
    yield "build", conditions.compilers(context.build)
    yield "source", ", ".join(f"{name} {sha[:12]}" for name, sha in record.source.items())
    yield "environment", conditions.pairs(context.environment)
    yield "options", conditions.pairs(context.options)
    yield "started", record.began_at
    yield "versions", f"schema {record.schema}, method {record.method}"


def _imported(said: Any) -> Iterator[Fact]:
    for name, value in said.items() if isinstance(said, dict) else [("", said)]:
        yield name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _how_again(record: Record) -> str:
    commit = visible(record.context.build.commit) or "an unknown commit"
    dirty = " with changes that are in no commit" if record.context.build.dirty else ""
    whole = f"Measured again, with all its launches, at {commit}{dirty}"
    if record.kind == "duet":
        return f"{whole}; HEAD and BASE are the folders of modules of the two builds:"
    return f"{whole}:"


def _facts(width: int, facts: Iterator[Fact]) -> Iterator[str]:
    """The known ones as lines that fit the width."""
    for name, value in facts:
        if value:
            yield from textwrap.wrap(
                visible(value),
                width,
                initial_indent=f"  {visible(name):<{LABEL}} ",
                subsequent_indent=" " * (LABEL + 3),
                break_long_words=False,
                break_on_hyphens=False,
            )
