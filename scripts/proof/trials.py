"""Trials of the gate, and the files that hold them.

A trial is a whole gate on one machine with one build on both sides, or with one side slowed down on
purpose. Its verdicts are not stored: `decision.decide_gate` gives them from the launch values, with
the margins of a duet and no floors.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from gpulift.gate.evidence import ERROR, OK, SKIPPED, Launch, Row
from gpulift.ground.errors import RecordError
from gpulift.ground.whole import read_whole
from gpulift.records.decode import NotJsonError, converted, parse_line
from gpulift.records.model import ID_DIGITS
from gpulift.records.values import NotNegative, Number, Whole, among
from gpulift.verdicts.decision import DUET, GatePlan, Verdict, decide_gate

SCHEMA = "1.0"  # of trials
AA = "aa"
PLANTED = "planted"
KINDS = (AA, PLANTED)
SIZES = (0.002, 0.005, 0.01, 0.02, 0.05)  # planted slow-downs
# Of commit 75a03a7. In earlier screens the head prepared first in all of the first four launches.
ORDER_CARRIED_FROM = "2026-11-24T20:48:46Z"
ONE_ROW, FEW_ROWS, SUITE = "1 row", "2 to 5 rows", "6 rows or more"
MOST_OF_FEW = 5
BY_GPU = "GPU"
BY_HOST = "launches or host"
Seed = Annotated[int, Meta(ge=0)]  # of 64 bits and more


@dataclass(frozen=True)
class RowTrial:
    """A row in a trial. `first` and `second` are the launch values of the two stages (log ratios).
    Trials of before 2026-11-29 have medians of the screen's windows, too: seconds of a step and SM
    clock cycles of both sides."""

    row: str
    on_gpu: bool
    outcome: str
    reason: str
    size: NotNegative
    planted: tuple[Number, ...]
    first: tuple[Number, ...]
    second: tuple[Number, ...]
    base_s: tuple[NotNegative, ...]
    head_s: tuple[NotNegative, ...]
    base_cycles: tuple[NotNegative, ...]
    head_cycles: tuple[NotNegative, ...]
    seconds: NotNegative
    records: tuple[str, ...]

    @property
    def launches(self) -> int:
        """Of both stages."""
        return len(self.first) + len(self.second)

    @property
    def bound_by(self) -> str:
        """What bounds the row: the GPU where its events judge work that was queued before."""
        return BY_GPU if self.on_gpu else BY_HOST


@dataclass(frozen=True)
class Trial:
    """One finished trial. `cases` is the number of rows among which its gate shared the error
    budget; `seed` is its first one, and `schedule_sha256` was said before it began (A/A trials have
    none). `build` is empty where a build from committed files met a copy of itself; otherwise it
    has the fingerprints of the builds that met, head+base where there were two. `one_launch` is
    what rules of other tools said, in trials of before 2026-11-29."""

    schema: str
    kind: Annotated[str, among(*KINDS)]
    number: Whole
    method: str
    decision_method: str
    machine: str
    card: str
    driver: str
    commit: str
    dirty: bool
    build: str
    arm_time_s: NotNegative
    started_at: str
    seconds: NotNegative
    cases: Whole
    seed: Seed
    schedule_sha256: str
    rows: tuple[RowTrial, ...]
    one_launch: tuple[Mapping[str, Any], ...] = ()

    @cached_property
    def id(self) -> str:
        """The start of the SHA-256 of its line."""
        return hashlib.sha256(line_of(self).encode("ascii")).hexdigest()[:ID_DIGITS]

    @property
    def plan(self) -> GatePlan:
        """How its gate spent the error budget."""
        return GatePlan(self.cases)

    @property
    def measured(self) -> list[RowTrial]:
        """The rows of which every launch was measured."""
        return [row for row in self.rows if row.outcome == OK]

    @property
    def gate(self) -> str:
        """Among how many rows it shared its error budget: of one row, the whole is spent on it."""
        if self.cases == 1:
            return ONE_ROW
        return FEW_ROWS if self.cases <= MOST_OF_FEW else SUITE

    @property
    def order_carried(self) -> bool:
        """Whether the runs of a screen went on with the order in which sides prepare."""
        return self.started_at >= ORDER_CARRIED_FROM

    def verdict(self, row: RowTrial) -> Verdict:
        """What the gate says of one of its rows."""
        return decide_gate(row.first, row.second, DUET, self.plan)


@dataclass(frozen=True)
class Part:
    """The rows of a trial that are slowed down by the same size; size 0 is unchanged."""

    index: int
    size: float
    rows: tuple[Row, ...]

    @property
    def series(self) -> str:
        """Name of its folder."""
        return f"{PLANTED}-{self.size:g}" if self.size else AA


def plant(rows: Sequence[Row], seed: int) -> tuple[Part, ...]:
    """A random size for each row; about one in six gets none and is left out of the trial."""
    hand = [0.0, *SIZES]
    chosen = random.Random(seed)
    dealt: dict[float, list[Row]] = {}
    while not dealt:
        sizes: list[float] = []
        while len(sizes) < len(rows):
            chosen.shuffle(hand)
            sizes += hand
        for row, size in zip(rows, sizes, strict=False):
            if size:
                dealt.setdefault(size, []).append(row)
    return tuple(Part(i, size, tuple(dealt[size])) for i, size in enumerate(sorted(dealt)))


def outcome_of(
    first: Sequence[Launch], second: Sequence[Launch], plan: GatePlan
) -> tuple[str, str]:
    """`ok`, or why the gate would have no verdict on the row."""
    launches = [*first, *second]
    for one in launches:
        if one.outcome not in (OK, SKIPPED):
            return ERROR, one.reason
    skips = [one for one in launches if one.outcome == SKIPPED]
    if skips:
        return (SKIPPED if len(skips) == len(launches) else ERROR), skips[0].reason
    if len(first) not in plan.screens:
        return ERROR, f"{len(first)} launches of the first stage were recorded"
    if len(second) not in (0, *plan.looks):
        return ERROR, f"{len(second)} launches of the second stage were recorded"
    return OK, ""


def schedule_hash(size_of: Mapping[str, float]) -> str:
    """SHA-256 of the JSON of a schedule, sizes by row, with sorted keys."""
    return hashlib.sha256(json.dumps(dict(size_of), sort_keys=True).encode("ascii")).hexdigest()


def line_of(trial: Trial) -> str:
    """The trial as one line of JSON, without the line feed."""
    return json.dumps(asdict(trial), separators=(",", ":"), allow_nan=False)


def read_trials(file: Path) -> tuple[list[Trial], list[str]]:
    """The trials of a file, and warnings: a last line that was cut off is dropped."""
    lines = read_whole(file).split(b"\n")
    trials, warned = [], []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        place = f"{file}:{number}"
        try:
            raw = parse_line(line, place)
        except NotJsonError:
            if number != len(lines):
                raise
            warned.append(f"{place}: the last trial is cut off; it was dropped")
            continue
        trials.append(_read_trial(raw, place))
    return trials, warned


def _read_trial(raw: Mapping[str, Any], place: str) -> Trial:
    if raw.get("schema", SCHEMA) != SCHEMA:
        raise RecordError(f"{place}: schema is {raw['schema']}; only {SCHEMA} can be read")
    trial = converted(raw, Trial, place, closed=True)
    size_of = {row.row: row.size for row in trial.rows}
    if len(size_of) != len(trial.rows):
        raise RecordError(f"{place}: rows names a row twice")
    if trial.kind == PLANTED and schedule_hash(size_of) != trial.schedule_sha256:
        raise RecordError(f"{place}: schedule_sha256 is not that of the rows and sizes beside it")
    if any((row.size > 0) != (trial.kind == PLANTED) for row in trial.rows):
        raise RecordError(
            f"{place}: rows has sizes that do not go with a trial of kind {trial.kind}"
        )
    return trial
