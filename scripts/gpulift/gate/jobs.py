"""What takes the launches of a gate of somebody's command: fresh processes of base and head in
turns."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gpulift.gate.evidence import BASE, HEAD, batch_folder
from gpulift.gate.instructions import counting
from gpulift.gate.load import CoreTimes, busy_elsewhere
from gpulift.gate.measure import Batch, Budget, BudgetOver
from gpulift.gate.metrics import Finished, NoNumberError, Reading, Untimed
from gpulift.gate.pairs import Dropped, Pair, PairedLaunch, Run, write_launch
from gpulift.gate.processes import run_to_end
from gpulift.gate.same import Outputs
from gpulift.ground.programs import not_started, text_of
from gpulift.ground.text import visible
from gpulift.records.values import LARGEST

OUT = "{out}"
FAILED_IN = 10  # pairs of a stage: one in so many may fail and is taken again
LAST_LETTERS = 300  # of what a failed run said
TICK_NS = 10_000_000  # by which the clock of a file system may be behind

Read = Callable[[Finished], Mapping[str, Reading | Untimed]]
Say = Callable[[str], None]


@dataclass(frozen=True)
class JobSide:
    """Where a command runs as base or head, and what it gets for an environment; `root` has all
    files of its `commit`, and `python` is its interpreter, where sides differ in that."""

    name: str
    folder: Path
    environment: Mapping[str, str]
    root: Path | None = None
    python: Path | None = None
    commit: str = ""


@dataclass(frozen=True)
class Job:
    """A command, and how its numbers are read; `{out}` in it is a file that it is to write.

    `suite` names all of its rows; `limit_s` is how long a run may take.
    """

    suite: str
    command: tuple[str, ...]
    read: Read
    limit_s: float
    slowed: tuple[str, ...] = ()  # the command with a slow-down in its work, if there is one
    same: Outputs | None = None  # what all runs but those must have alike
    counted: bool = False  # whether their instructions are


class RunFailed(Exception):
    """A run that ended badly, or did not say its numbers."""


def run_once(job: Job, side: JobSide, out: Path, left_s: float) -> Run:
    """One process, which may write to `out`. Raises RunFailed, and BudgetOver where `left_s` ended
    it."""
    shutil.rmtree(out) if out.is_dir() else out.unlink(missing_ok=True)
    command = [part.replace(OUT, str(out)) for part in job.command]
    limit_s, began_ns = min(job.limit_s, left_s), time.time_ns()
    before = CoreTimes.now()
    try:
        with counting(job.counted) as count:
            done = run_to_end(command, limit_s, side.folder, side.environment, alone=True)
            instructions = count()
    except subprocess.TimeoutExpired:
        if left_s <= job.limit_s:
            raise BudgetOver from None
        raise RunFailed(f"has not ended in {job.limit_s:g} s (--timeout)") from None
    except OSError as error:
        raise not_started(command[0], side.folder, side.environment, error) from None
    except NoNumberError as error:
        raise RunFailed(str(error)) from None
    after = CoreTimes.now()
    cpu_s = after.children_s - before.children_s
    busy = busy_elsewhere(before, after, done.seconds)
    if done.code != 0:
        said = visible(" ".join(f"{text_of(done.printed)} {text_of(done.errors)}".split()))
        said = said if len(said) <= LAST_LETTERS else f"…{said[-LAST_LETTERS:]}"
        how = f"signal {-done.code}" if done.code < 0 else f"code {done.code}"
        raise RunFailed(f"ended with {how}" + (f": {said}" if said else ""))
    printed, errors = text_of(done.printed), text_of(done.errors)
    began_ns -= TICK_NS
    ended = (done.seconds, printed, errors, side.folder, out, began_ns, cpu_s, instructions)
    run = Finished(*ended)
    try:
        rows = job.read(run)
    except NoNumberError as error:
        raise RunFailed(str(error)) from None
    if job.same is not None:
        job.same.require_equal(run)
    values = {name: row for name, row in rows.items() if isinstance(row, Reading)}
    untimed = {name: row for name, row in rows.items() if isinstance(row, Untimed)}
    for name, reading in values.items():
        if not 0 < reading.value <= LARGEST:
            raise RunFailed(f"{name}: {reading.value:g} is no number above 0")
    return Run(values, done.seconds, "", busy, untimed, done.left)


@dataclass
class Jobs:
    """Takes launches of `pairs` pairs of runs, an odd number."""

    job: Job
    base: JobSide
    head: JobSide
    say: Say
    pairs: int = 1

    def cost(self, rows: int, launches: int) -> int:
        """A run has all rows."""
        return launches if rows else 0

    def take(self, batch: Batch, budget: Budget) -> list[Path]:
        """A folder for each launch."""
        folders = []
        left = max(1, len(batch.launches) * self.pairs // FAILED_IN)
        for launch in batch.launches:
            folder = batch_folder(batch.folder, range(launch, launch + 1))
            folder.mkdir(parents=True, exist_ok=True)
            taken = self._launch(batch, launch, folder, budget, left)
            left -= len(taken.dropped)
            write_launch(folder, taken)
            folders.append(folder)
        return folders

    def _launch(
        self, batch: Batch, launch: int, folder: Path, budget: Budget, may_fail: int
    ) -> PairedLaunch:
        """Its pairs. One that fails is dropped and taken again, as often as may be."""
        pairs: list[Pair] = []
        dropped: list[Dropped] = []
        while len(pairs) < self.pairs:
            # Base first and head first in turns: what drifts with time is in both alike.
            first_is_base = (launch * self.pairs + len(pairs) + batch.stage) % 2
            order = (BASE, HEAD) if first_is_base else (HEAD, BASE)
            pair = self._pair(batch, order, folder, budget)
            broken = next((side for side in order if pair.of(side).reason), None)
            if broken and len(dropped) < may_fail:
                dropped.append(Dropped(broken, pair.of(broken).reason))
                self.say(f"a run of the {broken} {dropped[-1].reason}: the pair is taken again")
                continue
            pairs.append(pair)
            if broken:
                break
        planted = None if self.job.slowed else batch.planted or None
        return PairedLaunch(tuple(pairs), planted, tuple(dropped))

    def _pair(self, batch: Batch, order: tuple[str, str], folder: Path, budget: Budget) -> Pair:
        real = dict(zip((BASE, HEAD), batch.sides, strict=True))
        runs = {BASE: Run(), HEAD: Run()}
        for side in order:
            left_s = budget.left_s()
            if left_s <= 0:
                raise BudgetOver
            place = self.base if real[side] == BASE else self.head
            slowed = batch.planted and side == HEAD and self.job.slowed
            job = replace(self.job, command=self.job.slowed, same=None) if slowed else self.job
            try:
                runs[side] = run_once(job, place, folder / f"{side}.out", left_s)
            except RunFailed as failed:
                runs[side] = Run(reason=str(failed))
                break
        if batch.planted and not self.job.slowed:
            runs[HEAD] = _slowed(runs[HEAD], batch.planted)
        return Pair(order, runs[BASE], runs[HEAD])


def _slowed(run: Run, planted: float) -> Run:
    """With numbers that are worse by that fraction."""
    factor = 1 + planted
    values = {
        row: replace(one, value=one.value / factor if one.higher else one.value * factor)
        for row, one in run.values.items()
    }
    return replace(run, values=values)


def environment_of(python: Path | None, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment, in which `python` is that of an interpreter's folder where one is named."""
    made = dict(environment)
    if python is not None:
        made["PATH"] = os.pathsep.join([str(python.parent), made.get("PATH", os.defpath)])
        made["VIRTUAL_ENV"] = str(python.parent.parent)
        made.pop("PYTHONHOME", None)
    return made
