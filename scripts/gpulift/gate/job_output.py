"""What a gate of somebody's command says: lines, a comment in Markdown, Bencher's metric format."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from gpulift.gate import output
from gpulift.gate.evidence import BASE, CASES, HEAD, Row, launch_folders
from gpulift.gate.judge import GateResult, RowResult
from gpulift.gate.launches import GateRecords
from gpulift.gate.metrics import INSTRUCTIONS, NOT_TIME, WALL, Reading
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

ORDER = (ERROR, REGRESSED, IMPROVED, INCONCLUSIVE, EQUIVALENT, SKIPPED)
CALM = (EQUIVALENT, SKIPPED)
NONE = "–"
MOST_ROWS = 100  # of a table: a comment of GitHub holds 65,536 characters
SLOW_START, SLOW_START_S = 5.0, 0.2  # times the later runs: a first one did what they did not
MOST_LAUNCHES = 1000  # that are ever advised
OF_CONTROLS = 24  # launches, and as many more where they vary
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
    within = {EQUIVALENT: f" (within {percent(result.setup.equivalent)})"}
    counts = [
        f"{result.counts[word]} {word}{within.get(word, '')}"
        for word in ORDER
        if result.counts[word]
    ]
    return f"{text.counted(len(result.rows), 'row')}: {', '.join(counts)}"


def beside(result: GateResult, folder: Path) -> dict[Row, str]:
    """In words base and head of every row that has a difference."""
    return {one.result.row: _beside(one) for one in figures(result, launches_of(folder, result))}


def lines(result: GateResult, folder: Path) -> Iterator[str]:
    """Counts first, the rows with both sides, what could not be told, the controls."""
    launches = launches_of(folder, result)
    yield f"base {result.setup.base}, head {result.setup.head}: {counted(result)}"
    numbers = {one.result.row: one for one in figures(result, launches)}
    for word in ORDER:
        for one in result.rows:
            if one.verdict.verdict == word:
                yield f"{word:<13}{one.row.arm}: {_told(one, numbers.get(one.row))}"
    yield from _noted(result, numbers, launches)
    for control in result.controls:
        yield f"control {control.name}: {control.state}: {control.said}"


def markdown(result: GateResult, folder: Path) -> Iterator[str]:
    """A comment for a pull request: counts, what changed or could not be told, the rest folded."""
    launches = launches_of(folder, result)
    sides = f"base {result.setup.base}, head {result.setup.head}"
    yield f"**gpulift gate: {counted(result)}** ({sides})"
    numbers = {one.result.row: one for one in figures(result, launches)}
    told = [one for word in ORDER for one in result.rows if one.verdict.verdict == word]
    first = [one for one in told if one.verdict.verdict not in CALM]
    yield from _table(first, numbers)
    if rest := [one for one in told if one not in first]:
        yield from (
            "",
            f"<details><summary>{text.counted(len(rest), 'row')} without a change</summary>",
        )
        yield from (*_table(rest, numbers), "", "</details>")
    more = [*_noted(result, numbers, launches)]
    more += [f"control {c.name} {c.state}: {c.said}" for c in result.controls if not c.passed]
    for line in more:
        yield from ("", line)


def _table(rows: Sequence[RowResult], numbers: Mapping[Row, Figures]) -> Iterator[str]:
    if not rows:
        return
    yield from ("", "| row | base | head | head / base | |", "| --- | ---: | ---: | ---: | --- |")
    for one in rows[:MOST_ROWS]:
        found, verdict = numbers.get(one.row), one.verdict
        shown = (_shown(found.base), _shown(found.head), _factor(found)) if found else (NONE,) * 3
        why = f"{verdict.verdict}: {verdict.reason}" if verdict.reason else verdict.verdict
        name, why = (part.replace("|", "\\|").replace("`", "'") for part in (one.row.arm, why))
        yield f"| {' | '.join((f'`{name}`', *shown, why))} |"
    if len(rows) > MOST_ROWS:
        yield from ("", f"and {len(rows) - MOST_ROWS} more")


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


def _noted(
    result: GateResult, numbers: Mapping[Row, Figures], launches: Sequence[PairedLaunch]
) -> Iterator[str]:
    """What numbers that are no times do not see, what could not be told, and what disturbed it."""
    for unit, note in NOT_TIME.items():
        if any(one.base.unit == unit for one in numbers.values()):
            yield note
    yield from untold(result, launches)
    if result.counts[INCONCLUSIVE] and {row.arm for row in numbers} == {WALL}:
        yield "--metric cpu may tell it: other processes disturb CPU seconds less than the clock"
    yield from _disturbed(result, launches)


def untold(result: GateResult, launches: Sequence[PairedLaunch]) -> Iterator[str]:
    """What could not be told, with how many launches, and what would tell it."""
    open_rows = [one for one in result.rows if one.verdict.verdict == INCONCLUSIVE]
    if not open_rows:
        return
    rows = text.counted(len(open_rows), "row")
    most = max(len(one.first) + len(one.second) for one in open_rows)
    yield f"{rows} could not be told with {most} launches"
    alpha, needed, aim = result.plan.look_alpha, list[int | None](), 0.0
    for one in open_rows:
        if difference := one.verdict.difference:
            least = one.margins.least
            aim = max(aim, AIM * least)
            needed.append(difference.launches_to_see(AIM * least, alpha, least, MOST_LAUNCHES))
    counts = [count for count in needed if count]
    if len(counts) < len(needed):
        yield f"{MOST_LAUNCHES} launches would not tell {percent(aim)}: --threshold asks for less"
    elif counts:
        runs = [
            run for launch in launches for pair in launch.pairs for run in (pair.base, pair.head)
        ]
        each_s = sum(run.seconds for run in runs) / len(launches)
        minutes = math.ceil((max(counts) + OF_CONTROLS) * each_s / 60)
        yield f"{max(counts)} launches would tell {percent(aim)}: --budget {minutes}m"


def _disturbed(result: GateResult, launches: Sequence[PairedLaunch]) -> Iterator[str]:
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
    left = [name for pair in pairs for side in pair.order for name in pair.of(side).left]
    if left:
        many = text.counted(len(left), "process", "processes")
        yield f"runs left {many} behind, as {text.visible(left[0])}, which were ended after each"
    for side, first_s in result.setup.first_s.items():
        later_s = median(pair.of(side).seconds for pair in pairs) if pairs else first_s
        if first_s > SLOW_START * later_s and first_s - later_s > SLOW_START_S:
            yield (
                f"the first run of the {side} took {first_s / later_s:.0f} times as long as later"
                " ones, which alone are judged: do they go on from a file that it left?"
            )


def _told(one: RowResult, found: Figures | None) -> str:
    """Both sides with their ratio, and why nothing is told where that is so."""
    figures = f"{_beside(found)}, head / base {_factor(found)}" if found else ""
    return "; ".join(filter(None, (figures, one.verdict.reason)))


def _beside(one: Figures) -> str:
    return output.in_words(_shown(one.base), _shown(one.head))


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
    if read.unit == INSTRUCTIONS:
        return text.rate(read.value, read.unit)
    return f"{read.value:.4g}{' ' if read.unit else ''}{read.unit}"
