"""Tries the gate on this machine, and writes the certificate of its GPU model.

    python -m proof.certify --trials 20 [--gpu N] [--seed N] [--out FOLDER] [FILTER]
    python -m proof.certify --reissue nvidia-h200

Run by hand, in `scripts/`, once for each decision method. Suites of unchanged code and of planted
slow-downs take turns. How many there are is said before the first, and each goes on to its end: a
trial takes long when it found something to confirm, so that none may be left out for its time. A
session that was interrupted is gone on with by the same call and its folder.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer

from gpulift.commands.shared import examine
from gpulift.engine import machine, runs
from gpulift.engine.machine import TechniqueInfo
from gpulift.engine.runs import Wanted
from gpulift.gate.certificate import FOLDER, TRIALS_SUFFIX, file_of, sentence
from gpulift.gate.evidence import (
    TWO_IN_ONE,
    Row,
    Series,
    batch_folder,
    read_series,
    require_same_machine,
    stage_folder,
)
from gpulift.gate.judge import next_look, next_screen, values
from gpulift.gate.rows import choose_rows, selecting
from gpulift.ground.entry import say
from gpulift.ground.errors import (
    FAILED,
    INTERRUPTED,
    NOT_COMPARABLE,
    NOTHING_RAN,
    REFUSED,
    GpuliftError,
    write_error,
)
from gpulift.ground.signals import FORWARDED
from gpulift.ground.whole import write_whole
from gpulift.records.files import record_files
from gpulift.records.model import Context, Record
from gpulift.records.read import read_file
from gpulift.verdicts.decision import ARM_TIME_S, DECISION_METHOD, DUET, GatePlan
from proof.certificate import issue, write_certificate
from proof.trials import (
    AA,
    PLANTED,
    SCHEMA,
    Part,
    RowTrial,
    Trial,
    line_of,
    outcome_of,
    plant,
    read_trials,
    schedule_hash,
)

TRIALS_FILE = "trials.jsonl"
RAW_FOLDER = Path("certify")
TRIAL = "trial-{:04d}"
PILOT = 2  # launches of a screen that tell which rows can be measured
SEEDS_PER_STAGE = 1000  # more than a stage has launches; a multiple of four, as in a gate
SEEDS_PER_TRIAL = 100 * SEEDS_PER_STAGE
TRIALS_PER_SEED = 10_000


@dataclass(frozen=True)
class Session:
    """What is measured, and where to. Both sides are the modules beside the bench, of which
    gpulift-bench loads a private copy for the base."""

    folder: Path
    bench: Path
    want: Wanted
    rows: tuple[Row, ...]
    seed: int
    gpu: int | None

    def seed_of(self, number: int) -> int:
        """The first seed of a trial; no two launches of a session share one."""
        return (self.seed * TRIALS_PER_SEED + number) * SEEDS_PER_TRIAL


@dataclass(frozen=True)
class Begun:
    """A trial that is being measured; even numbers are of unchanged code."""

    session: Session
    number: int
    parts: tuple[Part, ...]

    @property
    def kind(self) -> str:
        """Of the trial."""
        return PLANTED if self.number % 2 else AA

    @property
    def folder(self) -> Path:
        """Of its raw records."""
        return self.session.folder / TRIAL.format(self.number)


def certify(
    filter: Annotated[str | None, typer.Argument(help="Technique or case, a regex.")] = None,
    trials: Annotated[int, typer.Option(min=1, help="How many, of both kinds together.")] = 20,
    out: Annotated[Path, typer.Option(help="Of a session, which is gone on with.")] = RAW_FOLDER,
    seed: Annotated[int, typer.Option(min=0, help="Seed of orders, data and plants.")] = 1,
    gpu: Annotated[int | None, typer.Option(help="Which GPU.")] = None,
    reissue: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Only from its trials in results.")
    ] = None,
) -> None:
    """Try the gate on unchanged and on slowed-down code; write the certificate of this GPU."""
    if reissue is None:
        here, infos = examine(gpu)
        bench = machine.find_bench()
        want = runs.wanted(here, {}, bench)
        rows = measurable_rows(infos, here, filter)
        session = Session(out, bench, want, tuple(rows), seed, gpu)
        say(f"{trials} trials of {len(rows)} rows; trials and raw records go to {out}")
        reissue = want.slug
        say(f"trials: {keep(measure(session, trials))}")
    held = [
        trial
        for file in sorted((machine.own_results() / FOLDER / reissue).glob(f"*{TRIALS_SUFFIX}"))
        for trial in read_trials(file)[0]
    ]
    own = [one for one in held if one.decision_method == DECISION_METHOD and not one.dirty]
    if len(own) < len(held):
        say(f"{len(held) - len(own)} trials are left out: another method, or uncommitted changes")
    certificate = issue(own)
    write_certificate(certificate, file_of(machine.own_results(), reissue))
    typer.echo(sentence(certificate))


def measurable_rows(infos: list[TechniqueInfo], context: Context, filter: str | None) -> list[Row]:
    """The quick rows that are selected and can be measured here (exit code 77 without one)."""
    chosen = choose_rows(infos, infos, filter, all_cases=False, more=", which are all it tries")
    not_here = {info.id: info.not_here(context) for info in infos}
    rows = [row for row in chosen if not not_here[row.technique]]
    reasons = dict.fromkeys(why for row in chosen if (why := not_here[row.technique]))
    if not rows:
        raise GpuliftError(f"no row can be measured here: {'; '.join(reasons)}", NOTHING_RAN)
    if reasons:
        say(f"{len(chosen) - len(rows)} of {len(chosen)} rows are left out: {'; '.join(reasons)}")
    return rows


def measure(session: Session, count: int) -> list[Trial]:
    """The finished trials of the folder, and those that lack. Refuses (exit code 4) a folder of
    another session."""
    trials = finished_trials(session)
    known = {one.number for one in trials}
    for number in (one for one in range(count) if one not in known):
        trial = run_trial(session, number)
        _append(session.folder, trial)
        trials.append(trial)
    return trials


def finished_trials(session: Session) -> list[Trial]:
    """Those that the folder holds; a last line that was cut off is taken away."""
    file = session.folder / TRIALS_FILE
    if not file.exists():
        return []
    trials, warnings = read_trials(file)
    for warning in warnings:
        say(f"warning: {warning}")
    if warnings:  # or the next line would be appended to the rest of the one that was cut off
        write_whole("".join(line_of(trial) + "\n" for trial in trials), file)
    for name, held, now in (
        ("machine", {one.machine for one in trials}, session.want.slug),
        (
            "build",
            {(one.commit, one.build) for one in trials},
            (session.want.commit, session.want.build),
        ),
        ("decision method", {one.decision_method for one in trials}, DECISION_METHOD),
        (
            "choice of rows",
            {frozenset(row.row for row in one.rows) for one in trials if one.kind == AA},
            frozenset(row.id for row in session.rows),
        ),
        ("seed", {one.seed - one.number * SEEDS_PER_TRIAL for one in trials}, session.seed_of(0)),
    ):
        if held - {now}:
            raise GpuliftError(
                f"{file} is of another {name}: name another folder with --out", NOT_COMPARABLE
            )
    return trials


def run_trial(session: Session, number: int) -> Trial:
    """One whole trial; of one that was broken off, what is there already is not measured again."""
    unchanged = (Part(0, 0.0, session.rows),)
    parts = plant(session.rows, session.seed_of(number)) if number % 2 else unchanged
    begun = Begun(session, number, parts)
    sizes = {row.id: part.size for part in begun.parts for row in part.rows}
    hashed = schedule_hash(sizes) if begun.kind == PLANTED else ""
    say(f"trial {number}: {f'planted, schedule {hashed}' if hashed else 'A/A'}, {len(sizes)} rows")
    started_at = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    started_s = time.monotonic()
    plan = _measured(begun)
    records = {part: _records(begun, part) for part in begun.parts}
    every = [one for held in records.values() for of in held.values() for one in of]
    if not every:
        raise GpuliftError(f"nothing was recorded in {begun.folder}", NOTHING_RAN)
    require_same_machine(every, "trial")
    context = every[0].context
    return Trial(
        schema=SCHEMA,
        kind=begun.kind,
        number=number,
        method=every[0].method,
        decision_method=DECISION_METHOD,
        machine=context.slug,
        card=context.gpu.card if context.gpu else "",
        driver=context.driver,
        commit=session.want.commit,
        dirty=session.want.dirty,
        build=session.want.build,
        arm_time_s=ARM_TIME_S,
        started_at=started_at,
        seconds=round(time.monotonic() - started_s, 3),
        cases=plan.cases,
        seed=session.seed_of(number),
        schedule_sha256=hashed,
        rows=tuple(row for part in begun.parts for row in _rows(begun, part, plan, records[part])),
    )


def _measured(begun: Begun) -> GatePlan:
    """Both stages, the screens of all parts first; how many rows shared the error budget."""
    launches = GatePlan(1).screen_launches
    for part in begun.parts:
        _take(begun, part, 1, range(PILOT), part.rows)
        _take(begun, part, 1, range(PILOT, launches), _sound(begun, part))
    unusable = [
        row
        for part in begun.parts
        for row in part.rows
        if not values(_series(begun, part).first.get(row, ()))
    ]
    plan = GatePlan(max(1, len(begun.session.rows) - len(unusable)))
    for part in begun.parts:
        for before, look in pairwise(plan.screens):
            series = _series(begun, part)
            noisy = [row for row in part.rows if next_screen(row, series, DUET, plan) == look]
            _take(begun, part, 1, range(before, look), noisy)
    for part in begun.parts:
        for before, look in pairwise((0, *plan.looks)):
            series = _series(begun, part)
            flagged = [row for row in part.rows if next_look(row, series, DUET, plan) == look]
            _take(begun, part, 2, range(before, look), flagged)
    return plan


def _take(begun: Begun, part: Part, stage: int, launches: range, rows: Sequence[Row]) -> None:
    """One call of gpulift-bench; the number of launches is even, so that either side allocates
    first in half of them."""
    if not rows:
        return
    session = begun.session
    modules = str(session.bench.parent / "modules")
    seed = session.seed_of(begun.number)
    seed += (2 * part.index + stage - 1) * SEEDS_PER_STAGE + launches.start
    records = batch_folder(stage_folder(begun.folder, part.series, stage), launches)
    flags = ["--head", modules, "--base", modules, "--quick"]
    flags += ["--arm-time", str(ARM_TIME_S), "--launches", str(len(launches))]
    flags += ["--seed", str(seed), "--records", str(records)]
    flags += ["--plant", str(part.size)] if part.size else []
    flags += [] if session.gpu is None else ["--gpu", str(session.gpu)]
    # The session's first launches note what a search took long to find.
    first = batch_folder(stage_folder(session.folder / TRIAL.format(0), AA, 1), range(PILOT))
    flags += ["--recall", str(first)] if first.is_dir() else []
    code = machine.measure(session.bench, [*flags, *selecting(rows, records)])
    again = f"the same call with --out {session.folder} goes on"
    if code in (INTERRUPTED, -signal.SIGINT):
        raise GpuliftError(f"interrupted: {again}", INTERRUPTED)
    if code < 0:
        ending = 128 - code if -code in FORWARDED else FAILED
        raise GpuliftError(f"gpulift-bench ended by {signal.Signals(-code).name}: {again}", ending)
    if code in REFUSED:
        raise GpuliftError(f"gpulift-bench refused, see above; {again}", code)


def _series(begun: Begun, part: Part) -> Series:
    return read_series(begun.folder, part.series, TWO_IN_ONE, part.rows)


def _sound(begun: Begun, part: Part) -> list[Row]:
    """The rows of which every launch so far was measured."""
    first = _series(begun, part).first
    held = {row: first.get(row, ()) for row in part.rows}
    return [row for row, got in held.items() if got and len(values(got)) == len(got)]


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


def _rows(
    begun: Begun, part: Part, plan: GatePlan, records_of: Mapping[Row, list[Record]]
) -> Iterator[RowTrial]:
    series = _series(begun, part)
    for row in part.rows:
        records = records_of.get(row, [])
        first, second = series.first.get(row, ()), series.second.get(row, ())
        outcome, reason = outcome_of(first, second, plan)
        arms = [arm for record in records for arm in record.arms]
        planted = (one.planted for one in (*first, *second))
        yield RowTrial(
            row=row.id,
            on_gpu=bool(arms) and not any(arm.may_wait_for_host for arm in arms),
            outcome=outcome,
            reason=reason,
            size=part.size,
            planted=tuple(one for one in planted if one is not None),
            first=tuple(values(first)),
            second=tuple(values(second)),
            base_s=(),
            head_s=(),
            base_cycles=(),
            head_cycles=(),
            seconds=round(sum(record.time_s.get("total", 0.0) for record in records), 3),
            records=tuple(record.id for record in records),
        )


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


def keep(trials: Sequence[Trial]) -> Path:
    """Copies them beside the certificate; the same session goes to the same file again."""
    first = trials[0]
    stem = f"{first.started_at[:10]}-{first.commit}{'-dirty' if first.dirty else ''}"
    above = machine.own_results() / FOLDER / first.machine
    file, number = above / f"{stem}{TRIALS_SUFFIX}", 1
    while file.exists() and read_trials(file)[0][:1] != [first]:
        number += 1
        file = above / f"{stem}-{number}{TRIALS_SUFFIX}"
    write_whole("".join(line_of(trial) + "\n" for trial in trials), file)
    return file


if __name__ == "__main__":
    try:
        typer.run(certify)
    except GpuliftError as error:
        say(f"error: {error}")
        sys.exit(error.exit_code)
