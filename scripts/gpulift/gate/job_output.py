"""What a gate of somebody's command says: lines, a comment in Markdown, Bencher's metric format."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from gpulift.gate import output
from gpulift.gate.evidence import BASE, CASES, HEAD, launch_folders
from gpulift.gate.judge import GateResult, RowResult
from gpulift.gate.launches import GateRecords
from gpulift.gate.metrics import Reading
from gpulift.gate.pairs import PairedLaunch, read_launch
from gpulift.ground import text
from gpulift.ground.estimate import Estimate
from gpulift.verdicts.decision import (
    AIM,
    EQUIVALENT,
    ERROR,
    IMPROVED,
    INCONCLUSIVE,
    REGRESSED,
    SKIPPED,
    percent,
)

CHANGED = (ERROR, REGRESSED, IMPROVED)
MOST_LAUNCHES = 1000  # that are ever advised
BUSY_CORES = 0.5  # of others, from which on a run is said to have been disturbed
MEASURE = "value"  # in Bencher's format, of a number without a unit
LATENCY = "latency"  # there, in nanoseconds


@dataclass(frozen=True)
class Figures:
    """A row that was compared, and the base's median."""

    result: RowResult
    base: Reading

    @property
    def factor(self) -> Estimate:
        """Head / base of the number itself, with its interval."""
        difference = self.result.verdict.difference
        assert difference is not None
        ratio = difference.ratio
        if not self.base.higher:
            return ratio
        low, high = (1 / end if end else None for end in (ratio.high, ratio.low))
        return Estimate(1 / ratio.value, low, high, ratio.launches)

    @property
    def head(self) -> Reading:
        """The base's median times the ratio, so that the three never contradict each other."""
        return replace(self.base, value=self.base.value * self.factor.value)


def launches_of(folder: Path, result: GateResult) -> list[PairedLaunch]:
    """Those of the rows, of both stages."""
    return [
        launch
        for stage in (1, 2)
        for one in launch_folders(folder, CASES, stage, result.setup.mode)
        if (launch := read_launch(one))
    ]


def figures(result: GateResult, launches: Sequence[PairedLaunch]) -> list[Figures]:
    """The rows that have a difference: the base's median, and with the ratio what the head's is."""
    made = []
    for one in result.rows:
        pairs = [pair for launch in launches for pair in launch.pairs]
        read = [pair.base.values[one.row.arm] for pair in pairs if one.row.arm in pair.base.values]
        if read and one.verdict.difference:
            base = replace(read[0], value=median(reading.value for reading in read))
            made.append(Figures(one, base))
    return made


def counted(result: GateResult) -> str:
    """`3 rows: 1 regressed, 2 equivalent (within 2 %)`."""
    order = (ERROR, REGRESSED, IMPROVED, INCONCLUSIVE, EQUIVALENT, SKIPPED)
    within = {EQUIVALENT: f" (within {percent(result.setup.equivalent)})"}
    counts = [
        f"{result.counts[word]} {word}{within.get(word, '')}"
        for word in order
        if result.counts[word]
    ]
    return f"{text.counted(len(result.rows), 'row')}: {', '.join(counts)}"


def lines(result: GateResult, folder: Path) -> Iterator[str]:
    """Counts first, the rows that changed, what could not be told, the controls."""
    launches = launches_of(folder, result)
    yield f"base {result.setup.base}, head {result.setup.head}: {counted(result)}"
    for one in figures(result, launches):
        verdict = one.result.verdict
        if verdict.verdict in (*CHANGED, EQUIVALENT):
            yield f"{verdict.verdict:<13}{one.result.row.arm}: {_told(one)}"
    for row in result.rows:
        if row.verdict.verdict in (ERROR, SKIPPED):
            yield f"{row.verdict.verdict:<13}{row.row.arm}: {row.verdict.reason}"
    yield from untold(result)
    yield from _disturbed(launches)
    for control in result.controls:
        yield f"control {control.name}: {control.state}: {control.said}"


def markdown(result: GateResult, folder: Path) -> Iterator[str]:
    """A comment for a pull request: counts, then only what changed."""
    launches = launches_of(folder, result)
    sides = f"base {result.setup.base}, head {result.setup.head}"
    yield f"**gpulift gate: {counted(result)}** ({sides})"
    changed = [one for one in figures(result, launches) if one.result.verdict.verdict in CHANGED]
    if changed:
        yield ""
        yield "| row | base | head | head / base | |"
        yield "| --- | ---: | ---: | ---: | --- |"
    for one in changed:
        name = one.result.row.arm.replace("|", "\\|").replace("`", "'")
        cells = (f"`{name}`", _shown(one.base), _shown(one.head), _factor(one))
        yield f"| {' | '.join(cells)} | {one.result.verdict.verdict} |"
    rest = [*untold(result), *_disturbed(launches)]
    rest += [f"control {c.name} {c.state}: {c.said}" for c in result.controls if not c.passed]
    for line in rest:
        yield ""
        yield line


def bencher(result: GateResult, folder: Path) -> str:
    """Bencher's metric format, bencher.dev/docs/reference/bencher-metric-format: of the head a
    value, and where it lies by the interval of the ratio; seconds in nanoseconds, as it wants."""
    made: dict[str, dict[str, dict[str, float]]] = {}
    for one in figures(result, launches_of(folder, result)):
        of_time = one.head.unit == "s"
        scale = 1e9 if of_time else 1.0
        value = {"value": one.head.value * scale}
        factor = one.factor
        if factor.low is not None and factor.high is not None:
            value["lower_value"] = one.base.value * factor.low * scale
            value["upper_value"] = one.base.value * factor.high * scale
        name = LATENCY if of_time else one.head.unit or MEASURE
        made[one.result.row.arm] = {name: value}
    return json.dumps(made, indent=2, allow_nan=False)


def as_json(result: GateResult, folder: Path) -> dict[str, Any]:
    """Everything that was found, for programs."""
    document = output.as_json(result, {}, GateRecords(folder, {}))
    numbers = {one.result.row.arm: one for one in figures(result, launches_of(folder, result))}
    for row in document["rows"]:
        if one := numbers.get(row["arm"]):
            row["medians"] = {BASE: vars(one.base), HEAD: vars(one.head)}
    return document


def untold(result: GateResult) -> Iterator[str]:
    """What could not be told, with how many launches, and what would tell it."""
    open_rows = [one for one in result.rows if one.verdict.verdict == INCONCLUSIVE]
    if not open_rows:
        return
    rows = text.counted(len(open_rows), "row")
    most = max(len(one.first) + len(one.second) for one in open_rows)
    yield f"{rows} could not be told with {most} launches: {_names(open_rows)}"
    needed = [
        count
        for one in open_rows
        if (difference := one.verdict.difference)
        and (
            count := difference.launches_to_see(
                AIM * one.margins.least, result.plan.look_alpha, one.margins.least, MOST_LAUNCHES
            )
        )
    ]
    if needed:
        aim = percent(AIM * max(one.margins.least for one in open_rows))
        yield f"{max(needed)} launches would tell {aim}"


def _names(rows: Sequence[RowResult]) -> str:
    named = [f"{one.row.arm} ({one.verdict.reason})" for one in rows[:3]]
    return "; ".join(named) + (f"; and {len(rows) - 3} more" if len(rows) > 3 else "")


def _disturbed(launches: Sequence[PairedLaunch]) -> Iterator[str]:
    pairs = [pair for launch in launches for pair in launch.pairs]
    busy = [pair.of(side).other_cores for pair in pairs for side in pair.order]
    if busy and median(busy) > BUSY_CORES:
        yield (
            f"other processes kept {median(busy):.1f} cores busy meanwhile: repeat it on a quiet"
            " machine"
        )
    dropped = [one for launch in launches for one in launch.dropped]
    if dropped:
        first = dropped[0]
        yield f"{len(dropped)} runs failed and were taken again: {first.side}: {first.reason}"


def _told(one: Figures) -> str:
    return f"{_shown(one.base)} -> {_shown(one.head)}, head / base {_factor(one)}"


def _factor(one: Figures) -> str:
    factor = one.factor
    ends = (
        ""
        if factor.low is None or factor.high is None
        else f" [{factor.low:.4f}, {factor.high:.4f}]"
    )
    return f"{factor.value:.4f}{ends}"


def _shown(read: Reading) -> str:
    if read.unit == "s":
        return text.seconds(read.value)
    return f"{read.value:.4g}{' ' if read.unit else ''}{read.unit}"
