"""What a gate leaves behind: its set-up in gate.json and the records of its series.

A gate.json without a result is of a gate that was broken off. A series (`cases`, `null`, `planted`,
and `alone`, in which the base meets itself in the rows that broke) has a folder per stage. In a
duet it holds a folder of records for each run of gpulift-bench, named by its first launch:
`launch-0008`. With alternating processes it holds a folder per block of four, and in it one per
process, named by its turn and its side: `block-0002/1-head`. With somebody's command it holds a
folder per launch, `launch-0003`, which has pairs of runs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from gpulift.gate.pairs import PairedLaunch, read_launch
from gpulift.gate.same import Equal
from gpulift.ground.errors import NOT_COMPARABLE, GpuliftError, RecordError
from gpulift.ground.whole import write_whole
from gpulift.records.decode import converted, parse_line
from gpulift.records.files import record_files, record_files_below
from gpulift.records.model import Arm, Record
from gpulift.records.read import read_file
from gpulift.records.values import Fraction, Maybe, NotNegative, among
from gpulift.verdicts import duets, stats
from gpulift.verdicts.comparability import differences
from gpulift.verdicts.decision import DUET, Margins
from gpulift.verdicts.hardware import emptied_by_hardware

SCHEMA = "1.3"
GATE_FILE = "gate.json"
TWO_IN_ONE = "duet"
ALTERNATING = "alternating processes"
COMMANDS = "commands in turns"
FLAGS = ("--all",)  # options that take no value
WRITTEN_ALWAYS = ("least", "equivalent", "planted_size")  # no default stands for what is lost

CASES = "cases"
NULL = "null"
PLANTED = "planted"
ALONE = "alone"
SERIES = (CASES, NULL, PLANTED, ALONE)
OF_MACHINE = ("gpu.", "driver", "cuda_driver", "host.")  # facts that no build changes

OK = "ok"
SKIPPED = "skipped"
ERROR = "error"
BROKEN = ("failed", ERROR)
MISSING = "missing"
NO_BASE = "no base"  # the base alone broke: nothing is known of the head
SLOWED = "slowed down"  # by the hardware, in every block
UNLIKE = "not timed alike"  # base and head were not timed in the same way

BASE = "base"
HEAD = "head"
TURNS = (BASE, HEAD, HEAD, BASE)
TURNS_REVERSED = (HEAD, BASE, BASE, HEAD)


@dataclass(frozen=True, order=True)
class Row:
    """One comparison: an arm of a case of a technique, head against base."""

    technique: str
    case_id: str
    arm: str

    @property
    def case(self) -> str:
        """technique/case, as gpulift-bench names it."""
        return f"{self.technique}/{self.case_id}" if self.case_id else self.technique

    @property
    def id(self) -> str:
        """technique/case/arm, which is what filters see."""
        return f"{self.case}/{self.arm}"


@dataclass(frozen=True)
class Launch:
    """What one launch says of a row: a log ratio, head over base, or why there is none.

    `planted` is the measured fraction of extra work in the head, where some was asked for; `side`
    tells which one broke, where that is known: in a duet both live in one process.
    """

    value: float | None
    outcome: str = OK
    reason: str = ""
    planted: float | None = None
    side: str = ""


Launches = Mapping[Row, tuple[Launch, ...]]


@dataclass(frozen=True)
class Turn:
    """One side of a launch of a row: its record, if there is one, and the name of its arm there.

    In a duet both sides are arms of one record; else `process` numbers the processes of the block,
    from 1.
    """

    side: str
    record: Record | None
    arm_name: str
    process: int = 0

    @property
    def arm(self) -> Arm | None:
        """The arm in the record; None where either is missing."""
        return self.record.arm(self.arm_name) if self.record else None

    @property
    def state(self) -> tuple[str, str]:
        """Outcome and reason of the arm."""
        if self.record is None:
            return MISSING, "has no record"
        if self.record.outcome != OK:
            return _outcome(self.record), _told(self.record)
        if self.arm is None:
            return ERROR, f"has no arm {self.arm_name}"
        return self.arm.outcome, _told(self.arm)


@dataclass(frozen=True)
class Series:
    """The launches of both stages, by row."""

    first: Launches = field(default_factory=dict)
    second: Launches = field(default_factory=dict)

    def plus(self, stage: int, more: Launches) -> Series:
        """With more launches of a stage behind those that it has."""
        if stage == 1:
            return replace(self, first=_joined(self.first, more))
        return replace(self, second=_joined(self.second, more))


@dataclass(frozen=True)
class Origin:
    """Where launches are from: both commits by their hashes, what `gate` was asked for, when, and
    the machine in words by what they are of."""

    base: str = ""
    head: str = ""
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    script: str = ""
    command: tuple[str, ...] = ()
    conditions: Mapping[str, str] = field(default_factory=dict)
    began_at: str = ""

    @property
    def words(self) -> list[str]:
        """What `gate` is called with, besides the two commits."""
        held = [(name, one) for name, values in self.options.items() for one in values]
        options = [name if name in FLAGS else f"{name}={one}" for name, one in held]
        script = [self.script] if self.script else []
        return [*options, *script, *(["--", *self.command] if self.command else [])]


@dataclass(frozen=True)
class Setup:
    """All that verdicts depend on besides the records; `unmeasurable` has reasons by row id; so do
    `broken`, of rows that the head of a command did not say, and `lost`, of those of which nothing
    can be told. `first_s` is how long the first run of either side took, which no launch holds.

    `least_changes` has what a user asked for, by row id, and counts in place of `least`.
    The controls' `null_rows` and the `planted_size` (a fraction) are empty and 0 until known.
    `out_of_time` has the series that the budget ended; `unsteady` the rows that no filter asked for
    and that most of their trials in the certificate left inconclusive. `planted_by_command`: the
    slow-down is in the work of a command of the user's, of which no one knows the size. `equal` was
    the same in every run: else there are no verdicts.
    """

    method: str
    mode: Annotated[str, among(TWO_IN_ONE, ALTERNATING, COMMANDS)]
    base: str
    head: str
    machine: str
    certificate: str
    seed: int
    rows: tuple[Row, ...]
    unmeasurable: Mapping[str, str] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)
    lost: Mapping[str, str] = field(default_factory=dict)
    first_s: Mapping[str, NotNegative] = field(default_factory=dict)
    floors: Mapping[str, NotNegative] = field(default_factory=dict)
    least: Fraction = DUET.least
    equivalent: Fraction = DUET.equivalent
    null_rows: tuple[Row, ...] = ()
    planted_size: NotNegative = 0.0
    out_of_time: tuple[str, ...] = ()
    unsteady: tuple[Row, ...] = ()
    least_changes: Mapping[str, Fraction] = field(default_factory=dict)
    planted_by_command: bool = False
    equal: tuple[Equal, ...] = ()
    origin: Origin = Origin()

    @property
    def measurable(self) -> tuple[Row, ...]:
        """The rows that both sides can measure on this machine."""
        without = self.unmeasurable.keys() | self.broken.keys() | self.lost.keys()
        return tuple(row for row in self.rows if row.id not in without)

    def rows_of(self, series: str) -> tuple[Row, ...]:
        """The rows of a series."""
        return self.rows if series in (CASES, ALONE) else self.null_rows

    def margins(self, row: Row) -> Margins:
        """The margins of a row, above its floor where a certificate has one."""
        asked = Margins(self.least, self.equivalent).asked(self.least_changes.get(row.id))
        return asked.above_floor(self.floors.get(row.id))


@dataclass(frozen=True)
class Document:
    """What is read again of gate.json."""

    schema: str
    setup: Setup
    result: Maybe[dict[str, Any]] = None


@dataclass(frozen=True)
class Evidence:
    """A whole gate: verdicts are a pure function of this. Not `ended`: it was broken off."""

    setup: Setup
    cases: Series = Series()
    null: Series = Series()
    planted: Series = Series()
    alone: Series = Series()
    ended: bool = True

    def of(self, series: str) -> Series:
        """One of the series."""
        held = {CASES: self.cases, NULL: self.null, PLANTED: self.planted, ALONE: self.alone}
        return held[series]

    def left_open(self, series: str) -> bool:
        """Whether the budget or an interrupt left a series open."""
        return not self.ended or series in self.setup.out_of_time

    def plus(self, series: str, stage: int, more: Launches) -> Evidence:
        """With more launches of a stage of a series."""
        held = {name: self.of(name) for name in SERIES}
        held[series] = held[series].plus(stage, more)
        return _evidence(self.setup, held, self.ended)


def stage_folder(gate: Path, series: str, stage: int) -> Path:
    """Where the records of a stage are."""
    return gate / series / f"stage{stage}"


def batch_folder(stage: Path, launches: range) -> Path:
    """Where one run of gpulift-bench keeps these launches of a duet."""
    return stage / f"launch-{launches.start:04d}"


def block_folder(stage: Path, block: int) -> Path:
    """Where an alternating block keeps its records."""
    return stage / f"block-{block:04d}"


def turn_folder(block: Path, turn: int, side: str) -> Path:
    """Where one process of an alternating block keeps its records."""
    return block / f"{turn}-{side}"


def read_evidence(gate: Path) -> Evidence:
    """Reads back what a gate wrote. Throws GpuliftError when the folder holds none."""
    document = _read_document(gate / GATE_FILE)
    setup = document.setup
    held = {one: read_series(gate, one, setup.mode, setup.rows_of(one)) for one in SERIES}
    return _evidence(setup, held, document.result is not None)


def _evidence(setup: Setup, held: Mapping[str, Series], ended: bool) -> Evidence:
    return Evidence(setup, held[CASES], held[NULL], held[PLANTED], held[ALONE], ended)


def read_series(gate: Path, series: str, mode: str, rows: Sequence[Row]) -> Series:
    """The launches of both stages of a series."""
    found = Series()
    for stage in (1, 2):
        for folder in launch_folders(gate, series, stage, mode):
            found = found.plus(stage, read_launches(folder, mode, rows))
    return found


def launch_folders(gate: Path, series: str, stage: int, mode: str) -> list[Path]:
    """The folders of a stage in the order of their launches."""
    pattern = "block-*" if mode == ALTERNATING else "launch-*"
    return sorted(stage_folder(gate, series, stage).glob(pattern))


def read_launches(folder: Path, mode: str, rows: Sequence[Row]) -> Launches:
    """What one run of gpulift-bench, or one alternating block, says of the rows."""
    if mode == COMMANDS:
        launch = read_launch(folder)
        return {row: (_paired(launch, row.arm),) for row in rows} if launch else {}
    of_turns = _duet_launch if mode == TWO_IN_ONE else _block_launch
    found = read_turns(folder, mode, rows)
    return {row: tuple(of_turns(turns) for turns in held) for row, held in found.items()}


def read_turns(folder: Path, mode: str, rows: Sequence[Row]) -> dict[Row, list[tuple[Turn, ...]]]:
    """The turns of each launch of the rows that the folder has records of, in order; runs of
    somebody's command have none."""
    if mode == COMMANDS:
        return {}
    return (_duet_turns if mode == TWO_IN_ONE else _block_turns)(folder, rows)


def save(gate: Path, setup: Setup, result: Mapping[str, Any] | None = None) -> None:
    """Writes gate.json, whole or not at all; makes the folder."""
    document: dict[str, Any] = {"schema": SCHEMA, "setup": asdict(setup)}
    if result is not None:
        document["result"] = result
    write_whole(json.dumps(document, indent=2, allow_nan=False) + "\n", gate / GATE_FILE)


def require_one_machine(gate: Path) -> None:
    """Refuses (not comparable) evidence whose card, driver or host changed in the midst of it."""
    files = sorted(file for one in SERIES for file in record_files_below(gate / one))
    require_same_machine((record for file in files for record in read_file(file).records), "gate")


def require_same_machine(records: Iterable[Record], what: str) -> None:
    """Refuses (not comparable) records of which one is of another card, driver or host than the
    first; `what` is made of them."""
    first: Record | None = None
    for record in records:
        first = first or record
        found = [one for one in differences(first, record) if one.fact.startswith(OF_MACHINE)]
        if found:
            raise GpuliftError(
                f"not comparable: {found[0].fact} changed in the midst of the {what}, from"
                f" {found[0].base} at {first.file}:{first.line} to {found[0].head} at"
                f" {record.file}:{record.line}; a {what} is of one machine: measure again,"
                " into another folder",
                NOT_COMPARABLE,
            )


def _read_document(file: Path) -> Document:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise GpuliftError(f"{file}: no evidence of a gate: {error.strerror}") from None
    raw = parse_line(content, str(file))
    schema = str(raw.get("schema", SCHEMA))
    if schema.partition(".")[0] != SCHEMA.partition(".")[0]:
        raise RecordError(f"{file}: schema is {schema}, which this version cannot read")
    document = converted(raw, Document, str(file))
    for key in WRITTEN_ALWAYS:
        if key not in raw["setup"]:
            raise RecordError(f"{file}: setup.{key} is missing")
    _require_sound(document.setup, f"{file}: setup")
    return document


def _require_sound(setup: Setup, place: str) -> None:
    """Refuses what no gate writes, by its field: a verdict would rest on it."""
    for key in ("rows", "null_rows", "unsteady"):
        rows: Sequence[Row] = getattr(setup, key)
        twice = next((row for row in rows if rows.count(row) > 1), None)
        if twice is not None:
            raise RecordError(f"{place}.{key} names {twice.id} more than once")
        if not set(rows) <= set(setup.rows):
            raise RecordError(f"{place}.{key} must be among the rows")


def _records(folder: Path) -> list[Record]:
    """Launches in order; of records of the same launch, the last one counts."""
    latest: dict[tuple[tuple[str, ...], int], Record] = {}
    for file in record_files(folder):
        for record in read_file(file).records:
            latest[(record.subject, record.launch)] = record
    return sorted(latest.values(), key=lambda record: record.launch)


def _joined(held: Launches, more: Launches) -> Launches:
    return {**held, **{row: (*held.get(row, ()), *launches) for row, launches in more.items()}}


def _duet_turns(folder: Path, rows: Sequence[Row]) -> dict[Row, list[tuple[Turn, ...]]]:
    found: dict[Row, list[tuple[Turn, ...]]] = {row: [] for row in rows}
    for record in _records(folder):
        row = Row(record.technique, record.case_id, record.duet_arm)
        if row in found:
            base, head = duets.BASE + row.arm, duets.HEAD + row.arm
            found[row].append((Turn(BASE, record, base), Turn(HEAD, record, head)))
    return found


def _duet_launch(turns: Sequence[Turn]) -> Launch:
    base, head = turns
    record = base.record
    if record is None or record.outcome != OK:
        return Launch(None, *base.state)

    def value() -> float | None:
        pair = stats.pair_ratio([record], head.arm_name, base.arm_name)
        return math.log(pair.ratio.value) if pair else None

    return replace(_launch(turns, value), planted=_planted(record))


def _told(one: Record | Arm) -> str:
    """The reason, and what helps where something is known to."""
    return "; ".join(part for part in (one.reason, one.remedy) if part)


def _outcome(record: Record) -> str:
    return SLOWED if emptied_by_hardware(record) else record.outcome


def _planted(record: Record) -> float | None:
    said = record.notes.get("planted")
    if said is None:
        return None
    try:
        return float(said)
    except ValueError:
        place = f"{record.file}:{record.line}"
        raise RecordError(f"{place}: notes.planted must be a number, not {said!r}") from None


def _block_turns(folder: Path, rows: Sequence[Row]) -> dict[Row, list[tuple[Turn, ...]]]:
    processes = [
        (turn.name.rpartition("-")[2], {(r.technique, r.case_id): r for r in _records(turn)})
        for turn in sorted(folder.glob("*-*"))
    ]
    found: dict[Row, list[tuple[Turn, ...]]] = {row: [] for row in rows}
    for row in rows:
        turns = tuple(
            Turn(side, held.get((row.technique, row.case_id)), row.arm, number)
            for number, (side, held) in enumerate(processes, start=1)
        )
        if any(turn.record for turn in turns):
            found[row].append(turns)
    return found


def _block_launch(turns: Sequence[Turn]) -> Launch:
    broken = any(turn.state[0] not in (OK, SKIPPED, MISSING) for turn in turns)
    if len(turns) < len(TURNS) and not broken:
        return Launch(None, MISSING, f"only {len(turns)} of {len(TURNS)} processes were started")

    def value() -> float | None:
        logs: dict[str, list[float]] = {BASE: [], HEAD: []}
        for turn in turns:
            time = stats.step_time([turn.record], turn.arm_name) if turn.record else None
            if time is None:
                return None
            logs[turn.side].append(math.log(time.value))
        return float(np.mean(logs[HEAD]) - np.mean(logs[BASE]))

    return _launch(turns, value)


def _paired(launch: PairedLaunch, name: str) -> Launch:
    if failed := launch.failed(name):
        side, reason = failed
        return Launch(None, NO_BASE if side == BASE else ERROR, f"{side}: {reason}", side=side)
    units = sorted(unit or "no unit" for unit in launch.units(name))
    if len(units) > 1:
        return Launch(None, ERROR, f"its unit is {' and '.join(units)}", side=HEAD)
    return Launch(launch.log_ratio(name), planted=launch.planted)


def _launch(turns: Sequence[Turn], measured: Callable[[], float | None]) -> Launch:
    """Joins what both sides say. A head that skips what its base measures is an error."""
    states = [(turn.side, *turn.state) for turn in turns]
    broken = {side: (outcome, reason) for side, outcome, reason in states if outcome in BROKEN}
    if BASE in broken:
        told = "; ".join(f"{side} {outcome}: {why}" for side, (outcome, why) in broken.items())
        return Launch(None, NO_BASE, told)
    if HEAD in broken:
        outcome, reason = broken[HEAD]
        return Launch(None, outcome, f"{HEAD}: {reason}", side=HEAD)
    for side, outcome, reason in states:
        if outcome == SLOWED:
            return Launch(None, SLOWED, f"{side}: {reason}")
    skips = {side: reason for side, outcome, reason in states if outcome == SKIPPED}
    if BASE in skips:
        return Launch(None, SKIPPED, skips[BASE])
    if HEAD in skips:
        reason = f"head skips what the base measures: {skips[HEAD]}"
        return Launch(None, ERROR, reason, side=HEAD)
    for side, outcome, reason in states:
        if outcome == MISSING:
            return Launch(None, MISSING, f"{side} {reason}")
    unlike = _unlike(turns)
    if unlike:
        return Launch(None, UNLIKE, unlike)
    value = measured()
    return Launch(value) if value is not None else Launch(None, ERROR, "no block held both builds")


def _unlike(turns: Sequence[Turn]) -> str:
    """How the timing of the two sides differs; empty when it does not."""
    ways = {
        side: sorted({_timing(turn.arm) for turn in turns if turn.side == side and turn.arm})
        for side in (BASE, HEAD)
    }
    told = {side: " and ".join(found) for side, found in ways.items()}
    if len(set(told.values())) == 1 and all(len(found) == 1 for found in ways.values()):
        return ""
    return f"base {told[BASE]}, head {told[HEAD]}"


def _timing(arm: Arm) -> str:
    if arm.clock != "device":
        return f"by the {arm.clock} clock"
    return "queued behind the hold" if arm.held else "waiting for the host"
