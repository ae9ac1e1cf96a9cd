"""Measures trials for a certificate: the gate's two stages, on one build that meets itself.

A session has a folder: `trials.jsonl` with a line per finished trial, and beside it a folder of raw
records per trial, `trial-0003`, laid out as a gate's evidence. A trial that was broken off leaves
its folder without a line; the session goes on with it first. It is never dropped for what it found,
and a trial takes long when it found something to confirm: whether one is begun depends on those
before it, whether it goes on after its first launches depends on their spread, and after that the
time ends nothing (METHOD.md, Certificate).
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path

import numpy as np

from gpulift.certify import incumbent_rules
from gpulift.certify.incumbent_rules import Launch
from gpulift.certify.issue import (
    AA,
    KINDS,
    ONE_LAUNCH,
    PLANTED,
    SCHEMA,
    SIZES,
    RowTrial,
    RuleCount,
    Trial,
    line_of,
    read_trials,
    schedule_hash,
)
from gpulift.engine import machine
from gpulift.engine.runs import Wanted
from gpulift.gate import evidence as gate_evidence
from gpulift.gate.evidence import (
    ERROR,
    OK,
    SKIPPED,
    TWO_IN_ONE,
    Row,
    Series,
    batch_folder,
    read_series,
    require_same_machine,
    stage_folder,
)
from gpulift.gate.judge import next_look, next_screen, values
from gpulift.gate.measure import Budget, Say
from gpulift.gate.rows import selecting
from gpulift.ground.errors import (
    FAILED,
    INTERRUPTED,
    NOT_COMPARABLE,
    NOTHING_RAN,
    REFUSED,
    GpuliftError,
    write_error,
)
from gpulift.ground.estimate import CONFIDENCE
from gpulift.ground.signals import FORWARDED
from gpulift.ground.whole import write_whole
from gpulift.records.decode import decoded
from gpulift.records.files import record_files
from gpulift.records.model import Record
from gpulift.records.read import read_file
from gpulift.records.values import Number
from gpulift.verdicts.decision import DECISION_METHOD, DUET, GO_ON, GatePlan, paired, screen

TRIALS_FILE = "trials.jsonl"
BEGUN_FILE = "trial.json"  # in the folder of a trial: what it is, and the seconds it took so far
FOLDER = "trial-{:04d}"
PILOT = 2  # launches of a screen that tell how long the rest takes
DIGITS = 7  # of the medians, which only other rules read
SEEDS_PER_STAGE = 1000  # more than a stage has launches; a multiple of four, as in a gate
SEEDS_PER_TRIAL = 100 * SEEDS_PER_STAGE
TRIALS_PER_SEED = 10_000


class OutOfTimeError(GpuliftError):
    """The next trial would not end in time: it takes `needed_s`, as far as that is known."""

    def __init__(self, message: str, needed_s: float = 0.0) -> None:
        super().__init__(message)
        self.needed_s = needed_s


@dataclass(frozen=True)
class Session:
    """What is measured, where to, and for how long. Both sides are the modules beside the bench,
    of which gpulift-bench loads a private copy for the base; or the base's are in `base`."""

    folder: Path
    bench: Path
    want: Wanted
    rows: tuple[Row, ...]
    arm_time_s: float
    seed: int
    gpu: int | None
    budget: Budget
    say: Say
    sizes: tuple[float, ...] = SIZES  # of planted slow-downs; none: only suites of unchanged code
    unchanged: bool = True  # suites of unchanged code too
    base: Path | None = None  # folder of modules of a second build


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


@dataclass
class Begun:
    """A trial that is being measured; `seconds` is what it took so far."""

    session: Session
    number: int
    kind: str
    parts: tuple[Part, ...]
    started_at: str
    seconds: float = 0.0
    resumed: bool = False  # then what is there already costs no time, which teaches nothing

    @property
    def folder(self) -> Path:
        """Of its raw records."""
        return self.session.folder / FOLDER.format(self.number)

    @property
    def seed(self) -> int:
        """The first of its seeds; no two launches of a session share one."""
        return trial_seed(self.session, self.number)


@dataclass(frozen=True)
class Note:
    """What is left in the folder of a trial that was begun."""

    kind: str
    started_at: str
    seconds: Number
    schedule_sha256: str
    commit: str
    build: str


def measure_trials(session: Session) -> list[Trial]:
    """Runs A/A and planted trials until the time is over; all finished ones of the folder.

    Throws OutOfTimeError (exit code 2) when not even one more ended.
    """
    trials = finished_trials(session)
    for trial in trials:
        session.budget.learn(_launches_in(trial), trial.seconds)
    before, needed_s = len(trials), 0.0
    try:
        for begun in unfinished_trials(session, trials):
            session.say(f"trial {begun.number}: was broken off and is gone on with")
            trials.append(_finish(begun))
        while kind := _fitting_kind(session, trials):
            trials.append(_finish(begin_trial(session, next_number(session.folder), kind)))
    except OutOfTimeError as late:
        needed_s = late.needed_s
        session.say(f"a trial would not end in time and was broken off; {kept(session.folder)}")
    except KeyboardInterrupt:
        raise GpuliftError(f"interrupted: {kept(session.folder)}", INTERRUPTED) from None
    if len(trials) == before:
        raise OutOfTimeError(_too_short(session, trials, needed_s))
    return trials


def finished_trials(session: Session) -> list[Trial]:
    """Those that the folder holds. Refuses (exit code 4) a folder of another session."""
    file = session.folder / TRIALS_FILE
    if not file.exists():
        return []
    trials, warnings = read_trials(file)
    for warning in warnings:
        session.say(f"warning: {warning}")
    if warnings:  # or the next line would be appended to the rest of the one that was cut off
        write_whole("".join(line_of(trial) + "\n" for trial in trials), file)
    for name, held, now in (
        ("machine", {one.machine for one in trials}, session.want.slug),
        ("commit", {one.commit for one in trials}, session.want.commit),
        ("build", {one.build for one in trials}, session.want.build),
        ("arm time", {one.arm_time_s for one in trials}, session.arm_time_s),
        ("decision method", {one.decision_method for one in trials}, DECISION_METHOD),
    ):
        if held - {now}:
            raise GpuliftError(
                f"{file} is of another {name} ({', '.join(map(str, held - {now}))}, and this is"
                f" {now}): name another folder",
                NOT_COMPARABLE,
            )
    return trials


def kept(folder: Path) -> str:
    """What is left of a session that was broken off, and how to go on."""
    finished = "the finished trials are kept; " if (folder / TRIALS_FILE).exists() else ""
    return f"{finished}go on with certify --out {folder}"


def kinds_of(session: Session) -> tuple[str, ...]:
    """Of its trials."""
    wanted = {AA: session.unchanged, PLANTED: bool(session.sizes)}
    return tuple(kind for kind in KINDS if wanted[kind])


def next_kind(trials: Sequence[Trial]) -> str:
    """A/A first, then what less time was spent on: a planted trial takes longer than a suite."""
    unchanged_s = sum(one.seconds for one in trials if one.kind == AA)
    planted_s = sum(one.seconds for one in trials if one.kind == PLANTED)
    return AA if unchanged_s <= planted_s else PLANTED


def next_number(folder: Path) -> int:
    """Above that of every trial that was begun in the folder."""
    begun = [int(one.name.rpartition("-")[2]) for one in folder.glob("trial-[0-9]*")]
    return max(begun, default=-1) + 1


def trial_seed(session: Session, number: int) -> int:
    """The first seed of a trial."""
    return (session.seed * TRIALS_PER_SEED + number) * SEEDS_PER_TRIAL


def plant(rows: Sequence[Row], seed: int, of_sizes: tuple[float, ...] = SIZES) -> tuple[Part, ...]:
    """A random size for each row; about one in six gets none and is left out of the trial."""
    hand = [0.0, *of_sizes * max(1, len(SIZES) // len(of_sizes))]
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


def unfinished_trials(session: Session, finished: Sequence[Trial]) -> list[Begun]:
    """The trials of the folder that were broken off. Refuses (exit code 4) those of other rows
    or builds."""
    known = {one.number for one in finished}
    found = []
    for folder in sorted(session.folder.glob("trial-[0-9]*")):
        number = int(folder.name.rpartition("-")[2])
        file = folder / BEGUN_FILE
        if number in known or not file.is_file():
            continue
        note = decoded(file.read_bytes(), Note, str(file))
        parts = _parts(session, number, note.kind)
        begun = Begun(session, number, note.kind, parts, note.started_at, note.seconds, True)
        for what, held, now in (
            ("rows or another seed", note.schedule_sha256, schedule_hash(_size_of(begun.parts))),
            ("builds", note.commit, session.want.commit),
            ("builds", note.build, session.want.build),
        ):
            if held != now:
                raise GpuliftError(
                    f"{folder} was begun with other {what}: give the same, or name another folder",
                    NOT_COMPARABLE,
                )
        found.append(begun)
    return found


def begin_trial(session: Session, number: int, kind: str) -> Begun:
    """Leaves word in the trial's folder of what it is."""
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    begun = Begun(session, number, kind, _parts(session, number, kind), now)
    _note(begun)
    return begun


def run_trial(begun: Begun) -> Trial:
    """One whole trial. Throws OutOfTimeError when after its first launches it would not end in time
    by their spread; what they and later ones show never meets the clock."""
    session = begun.session
    hashed = schedule_hash(_size_of(begun.parts)) if begun.kind == PLANTED else ""
    _announce(begun, hashed)
    _screen(begun)
    plan = GatePlan(max(1, len(session.rows) - len(_unusable(begun))))
    _require_time(begun, _to_come(begun, plan))
    # All screens before any confirmation, or a trial with much to confirm would be broken off in
    # the screens that follow.
    for part in begun.parts:
        _screen_on(begun, part, plan)
    for part in begun.parts:
        _confirm(begun, part, plan)
    records = {part.index: _records(begun, part) for part in begun.parts}
    every = [one for held in records.values() for of in held.values() for one in of]
    if not every:
        raise GpuliftError(f"nothing was recorded in {begun.folder}", NOTHING_RAN)
    require_same_machine(every, "trial")
    context = every[0].context
    return Trial(
        schema=SCHEMA,
        kind=begun.kind,
        number=begun.number,
        method=every[0].method,
        decision_method=DECISION_METHOD,
        machine=context.slug,
        card=context.gpu.card if context.gpu else "",
        driver=context.driver,
        commit=session.want.commit,
        dirty=session.want.dirty,
        build=session.want.build,
        arm_time_s=session.arm_time_s,
        started_at=begun.started_at,
        seconds=round(begun.seconds, 3),
        cases=plan.cases,
        seed=begun.seed,
        schedule_sha256=hashed,
        rows=tuple(row for part in begun.parts for row in _row_trials(begun, part, plan, records)),
        one_launch=tuple(
            one for part in begun.parts for one in _one_launch(part, records[part.index], plan)
        ),
    )


def _finish(begun: Begun) -> Trial:
    trial = run_trial(begun)
    _append(begun.session.folder, trial)
    return trial


def _parts(session: Session, number: int, kind: str) -> tuple[Part, ...]:
    if kind == PLANTED:
        return plant(session.rows, trial_seed(session, number), session.sizes)
    return (Part(0, 0.0, session.rows),)


def _size_of(parts: Sequence[Part]) -> dict[str, float]:
    return {row.id: part.size for part in parts for row in part.rows}


def _note(begun: Begun) -> None:
    note = Note(
        kind=begun.kind,
        started_at=begun.started_at,
        seconds=round(begun.seconds, 3),
        schedule_sha256=schedule_hash(_size_of(begun.parts)),
        commit=begun.session.want.commit,
        build=begun.session.want.build,
    )
    write_whole(json.dumps(asdict(note), allow_nan=False) + "\n", begun.folder / BEGUN_FILE)


def _fitting_kind(session: Session, trials: Sequence[Trial]) -> str:
    """The next kind; the other one where only that ends in time; empty when neither does."""
    by_turn = sorted(kinds_of(session), key=lambda kind: kind != next_kind(trials))
    fitting = (
        kind for kind in by_turn if session.budget.allows(_row_launches(session, trials, kind))
    )
    return next(fitting, "")


def _row_launches(session: Session, trials: Sequence[Trial], kind: str) -> int:
    """Launches of one row that a trial takes: the longest screen of its kind so far and the
    confirmation of the noisiest row, and no less than the longest trial of its kind. Before there
    is one of its kind, the screen is as long as the longest of the other kind."""
    planned = len(session.rows) * GatePlan(1).screen_launches
    same = [one for one in trials if one.kind == kind]
    screened = max([planned, *(sum(len(row.first) for row in t.rows) for t in same or trials)])
    spreads = [row.first for one in trials for row in one.measured]
    if same:
        return max(screened + _of_noisiest(spreads), *map(_launches_in, same))
    return screened + _to_confirm(kind, screened, spreads)


def _to_confirm(kind: str, screened: int, spreads: Iterable[Sequence[float]]) -> int:
    """Launches of one row that confirming takes as a rule, after a screen of so many: of unchanged
    code one row, the noisiest; of what was planted nearly all, each at least one look."""
    plan = GatePlan(1)
    planted = screened * plan.looks[0] // plan.screen_launches if kind == PLANTED else 0
    return max(planted, _of_noisiest(spreads))


def _of_noisiest(spreads: Iterable[Sequence[float]]) -> int:
    return max(map(clearing_launches, spreads), default=GatePlan(1).looks[0])


def clearing_launches(launches: Sequence[float]) -> int:
    """How many launches of the second stage clear a row in which nothing changed, by the spread of
    these of the first, and not by their mean."""
    plan = GatePlan(1)
    one = paired(launches)
    if one is None:
        return plan.looks[0]
    for look in plan.looks:
        error = one.standard_error * math.sqrt(one.base_launches / look)
        later = replace(one, log_mean=0.0, standard_error=error, degrees=look - 1.0)
        if later.interval(CONFIDENCE)[1] < math.log1p(DUET.least):
            return look
    return plan.looks[-1]


def _too_short(session: Session, trials: Sequence[Trial], known_s: float) -> str:
    shortest = kinds_of(session)[0]
    needed_s = max(known_s, session.budget.estimate_s(_row_launches(session, trials, shortest)))
    reissue = "; --reissue takes the trials that are there" if trials else ""
    return (
        f"no trial ended in time: a trial of {len(session.rows)} rows takes about"
        f" {needed_s:.0f} s; give more --time, or select fewer rows{reissue}"
    )


def _launches_in(trial: Trial) -> int:
    return sum(row.launches for row in trial.rows)


def _announce(begun: Begun, hashed: str) -> None:
    left_s = begun.session.budget.left_s()
    what = f"planted slow-downs, schedule {hashed[:12]}" if hashed else "A/A"
    rows = sum(len(part.rows) for part in begun.parts)
    begun.session.say(f"trial {begun.number}: {what}, {rows} rows; {left_s:.0f} s are left")


def _screen(begun: Begun) -> None:
    launches = GatePlan(1).screen_launches
    for part in begun.parts:
        _measure(begun, part, 1, range(PILOT), part.rows)
    rest = {part: _sound(begun, part) for part in begun.parts}
    _require_time(begun, (launches - PILOT) * sum(map(len, rest.values())))
    for part, rows in rest.items():
        if rows:
            _measure(begun, part, 1, range(PILOT, launches), rows)


def _screen_on(begun: Begun, part: Part, plan: GatePlan) -> None:
    """More launches of the rows in which too little would have been seen."""
    for before, look in pairwise(plan.screens):
        series = _series(begun, part)
        noisy = [row for row in part.rows if next_screen(row, series, DUET, plan) == look]
        if noisy:
            _measure(begun, part, 1, range(before, look), noisy)


def _require_time(begun: Begun, row_launches: int) -> None:
    budget = begun.session.budget
    if not budget.allows(row_launches):
        needed_s = begun.seconds + budget.estimate_s(row_launches)
        raise OutOfTimeError("the trial would not end in time", needed_s)


def _to_come(begun: Begun, plan: GatePlan) -> int:
    """Launches of one row that a trial may still take, by the spread of each row's first ones.

    Their means have no part in it: what is flagged needs fewer, and would be kept more often."""
    spreads = [
        _centred(values(launches)[: plan.screen_launches])
        for part in begun.parts
        for launches in _series(begun, part).first.values()
    ]
    found = [screen(one, DUET, plan) for one in spreads]
    more = sum(one is not None and one.state == GO_ON for one in found)
    more *= plan.screens[-1] - plan.screen_launches
    return more + _to_confirm(begun.kind, sum(map(len, spreads)) + more, spreads)


def _centred(launches: Sequence[float]) -> list[float]:
    return [value - float(np.mean(launches)) for value in launches]


def _confirm(begun: Begun, part: Part, plan: GatePlan) -> None:
    """Takes looks with more and more fresh launches until every row is decided."""
    before = 0
    for look in plan.looks:
        series = _series(begun, part)
        rows = [row for row in part.rows if next_look(row, series, DUET, plan) == look]
        if rows:
            _say_when_late(begun, len(rows) * (look - before))
            _measure(begun, part, 2, range(before, look), rows)
        before = look


def _say_when_late(begun: Begun, row_launches: int) -> None:
    budget = begun.session.budget
    if not budget.allows(row_launches):
        begun.session.say(
            f"trial {begun.number}: {row_launches} launches to confirm what was seen take about"
            f" {budget.estimate_s(row_launches):.0f} s and go on after the time, so that no alarm"
            " is left out; an interrupted trial can be gone on with"
        )


def _measure(begun: Begun, part: Part, stage: int, launches: range, rows: Sequence[Row]) -> None:
    """One call of gpulift-bench; the number of launches is even, so that either side allocates
    first in half of them."""
    session = begun.session
    modules = str(session.bench.parent / "modules")
    seed = begun.seed + (2 * part.index + stage - 1) * SEEDS_PER_STAGE + launches.start
    records = batch_folder(stage_folder(begun.folder, part.series, stage), launches)
    flags = ["--head", modules, "--base", str(session.base or modules), "--quick"]
    flags += ["--arm-time", str(session.arm_time_s), "--launches", str(len(launches))]
    flags += ["--seed", str(seed), "--records", str(records)]
    flags += ["--plant", str(part.size)] if part.size else []
    flags += [] if session.gpu is None else ["--gpu", str(session.gpu)]
    searched = _searched(session)
    flags += ["--recall", str(searched)] if searched else []
    started_s = session.budget.clock()
    code = machine.measure(session.bench, [*flags, *selecting(rows, records)])
    took_s = session.budget.clock() - started_s
    if not begun.resumed:
        session.budget.learn(len(rows) * len(launches), took_s)
    begun.seconds += took_s
    _note(begun)
    _require_finished(session, code)


def _searched(session: Session) -> Path | None:
    """The records of the session's first launches, which note what a search took long to find."""
    stage = stage_folder(session.folder / FOLDER.format(0), AA, 1)
    first = batch_folder(stage, range(PILOT))
    return first if first.is_dir() else None


def _require_finished(session: Session, code: int) -> None:
    if code in (INTERRUPTED, -signal.SIGINT):
        raise GpuliftError(f"interrupted: {kept(session.folder)}", INTERRUPTED)
    if code < 0:
        forwarded = -code in FORWARDED
        raise GpuliftError(
            f"gpulift-bench ended by {signal.Signals(-code).name}: {kept(session.folder)}",
            128 - code if forwarded else FAILED,
        )
    if code in REFUSED:
        raise GpuliftError(f"gpulift-bench refused, see above; {kept(session.folder)}", code)


def _series(begun: Begun, part: Part) -> Series:
    return read_series(begun.folder, part.series, TWO_IN_ONE, part.rows)


def _sound(begun: Begun, part: Part) -> list[Row]:
    """The rows of which every launch so far was measured."""
    first = _series(begun, part).first
    held = {row: first.get(row, ()) for row in part.rows}
    return [row for row, got in held.items() if got and len(values(got)) == len(got)]


def _unusable(begun: Begun) -> list[Row]:
    """The rows without a single value."""
    unusable = []
    for part in begun.parts:
        first = _series(begun, part).first
        unusable += [row for row in part.rows if not values(first.get(row, ()))]
    return unusable


def _records(begun: Begun, part: Part) -> Mapping[Row, list[Record]]:
    """The records of both stages by row, in the order of their launches; of records of the same
    launch, the last one counts."""
    found: dict[Row, list[Record]] = {}
    for stage in (1, 2):
        for batch in sorted(stage_folder(begun.folder, part.series, stage).glob("launch-*")):
            held = [one for file in record_files(batch) for one in read_file(file).records]
            latest = {(record.subject, record.launch): record for record in held}
            for record in sorted(latest.values(), key=lambda one: one.launch):
                row = Row(record.technique, record.case_id, record.duet_arm)
                found.setdefault(row, []).append(record)
    return found


def _row_trials(
    begun: Begun, part: Part, plan: GatePlan, all_records: Mapping[int, Mapping[Row, list[Record]]]
) -> Iterator[RowTrial]:
    series = _series(begun, part)
    for row in part.rows:
        records = all_records[part.index].get(row, [])
        first, second = series.first.get(row, ()), series.second.get(row, ())
        launches = (*first, *second)
        outcome, reason = _outcome(first, second, plan)
        screened = incumbent_rules.launches_of(records)[: len(first)]
        yield RowTrial(
            row=row.id,
            on_gpu=_on_gpu(records),
            outcome=outcome,
            reason=reason,
            size=part.size,
            planted=tuple(one.planted for one in launches if one.planted is not None),
            first=tuple(values(first)),
            second=tuple(values(second)),
            base_s=_medians(one.base.times for one in screened),
            head_s=_medians(one.head.times for one in screened),
            base_cycles=_medians(one.base.cycles for one in screened),
            head_cycles=_medians(one.head.cycles for one in screened),
            seconds=round(sum(record.time_s.get("total", 0.0) for record in records), 3),
            records=tuple(record.id for record in records),
        )


def _outcome(
    first: Sequence[gate_evidence.Launch], second: Sequence[gate_evidence.Launch], plan: GatePlan
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


def _on_gpu(records: Sequence[Record]) -> bool:
    """Whether device events judged it, behind a holding kernel."""
    arms = [arm for record in records for arm in record.arms]
    return bool(arms) and not any(arm.may_wait_for_host for arm in arms)


def _medians(sides: Iterable[incumbent_rules.Values | None]) -> tuple[float, ...]:
    known = [one for one in sides if one is not None]
    return tuple(float(f"{np.median(one):.{DIGITS}g}") for one in known)


def _one_launch(
    part: Part, records: Mapping[Row, list[Record]], plan: GatePlan
) -> Iterator[RuleCount]:
    """What other tools' rules say of single launches of the screen."""
    cases: list[list[Launch]] = []
    for row in part.rows:
        cases.append(incumbent_rules.launches_of(records.get(row, []))[: plan.screen_launches])
    for one in incumbent_rules.tally([case for case in cases if case], plan, DUET):
        if one.repetition == ONE_LAUNCH:
            yield RuleCount(one.rule, part.size, one.trials, one.regressed, one.improved)


def _append(folder: Path, trial: Trial) -> None:
    """Adds the line of a finished trial; it is on the disk before the next one begins."""
    file = folder / TRIALS_FILE
    try:
        with file.open("a", encoding="utf-8") as out:
            out.write(line_of(trial) + "\n")
            out.flush()
            os.fsync(out.fileno())
    except OSError as error:
        raise write_error(file, error) from None
