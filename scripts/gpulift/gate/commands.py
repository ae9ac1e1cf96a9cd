"""The plan of a gate of somebody's command, in any repository: both sides, and how it is run."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from gpulift.engine import machine
from gpulift.engine.runs import make_new
from gpulift.gate import conditions
from gpulift.gate.asked import COMMAND, PYTHONS, Asked
from gpulift.gate.benchmark_files import Benchmarks, read_gbench, read_nvbench, read_pytest
from gpulift.gate.evidence import BASE, COMMANDS, HEAD, Row, Setup
from gpulift.gate.git import of_no_git
from gpulift.gate.instructions import counting
from gpulift.gate.jobs import OUT, Job, Jobs, JobSide, Read, Say, environment_of
from gpulift.gate.measure import Budget, Plan
from gpulift.gate.metrics import (
    INSTRUCTIONS,
    WALL,
    Finished,
    Metric,
    NoNumberError,
    Reading,
    Untimed,
    read_all,
)
from gpulift.gate.pairs import Run
from gpulift.gate.repositories import Repository, cache_folder
from gpulift.gate.trials import first_runs
from gpulift.ground import place
from gpulift.ground.errors import NOT_COMPARABLE, GpuliftError
from gpulift.ground.programs import job_environment
from gpulift.records.model import Record
from gpulift.records.read import read_results
from gpulift.verdicts import stats, thresholds
from gpulift.verdicts.decision import AIM, DECISION_METHOD, ERROR, INCONCLUSIVE, SKIPPED

LEAST_LAUNCHES = 24  # the first look, base against base, and what is planted until it is confirmed
SHORT_S = 3.0  # a launch, with as many pairs as fit, of which it takes the median
MOST_PAIRS = 5
MORE = 1.5  # times that, of long commands, and never less than the usual time
USUAL_S = 300.0
CHANGED = "this checkout, or name --head"
THE_SAME = "the same as the base, so that only noise can differ"


def callers_environment() -> dict[str, str]:
    """What commands get; ./gpulift hands it over once, so that it is asked for once."""
    return of_no_git(job_environment() or os.environ)


def plan(asked: Asked, callers: Mapping[str, str], held: ExitStack, say: Say) -> Plan:
    """Both sides, set up and tried once, and all that a gate of them measures; their folders are
    `held`."""
    gpu = {} if asked.gpu is None else {"CUDA_VISIBLE_DEVICES": str(asked.gpu)}
    environment = {**callers, **gpu}
    job = _job(asked, environment)
    base, head, cache, checkout = _sides(asked, environment, held, say)
    first, second, head = first_runs(job, base, head, checkout, say)
    each_s = first.seconds + second.seconds
    pairs = pairs_of_launch(each_s)
    used_s = time.monotonic() - asked.started_s
    budget_s = asked.budget_s or used_s + max(USUAL_S, MORE * LEAST_LAUNCHES * pairs * each_s)
    say(
        f"a run takes {each_s / 2:.3g} s, a launch has {pairs} of either side:"
        f" {LEAST_LAUNCHES * pairs * each_s:.0f} s more at least,"
        f" {budget_s:.0f} s in all at most (--budget)"
    )
    day = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    return Plan(
        setup=_setup(asked, job, (base, head), (first, second)),
        folder=asked.out or make_new(cache / "runs", day),
        taker=Jobs(job, base, head, say, pairs),
        budget=Budget(budget_s, pairs * each_s, used_s=used_s),
        say=say,
    )


def _job(asked: Asked, environment: Mapping[str, str]) -> Job:
    limit_s, slowed = asked.timeout_s, tuple(shlex.split(asked.plant))
    if asked.with_tool == COMMAND and not asked.script:
        metrics = asked.metrics or (Metric(WALL),)
        names = [metric.name for metric in metrics]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise GpuliftError(
                f"two metrics are called {twice}: name the group of one, as in (?P<loss>...)"
            )
        suite, read = Path(asked.command[0]).name, lambda run: read_all(metrics, run)
        counted = INSTRUCTIONS in (metric.source for metric in metrics)
        with counting(counted):  # refuses it before a set-up is run
            pass
        return Job(suite, asked.command, read, limit_s, slowed, asked.same, counted)
    others = {"--metric": asked.metrics, "--plant": slowed, "--same": asked.same.sources}
    if given := next((option for option, value in others.items() if value), None):
        raise GpuliftError(f"{given} is for a command: this tool says its own numbers")
    found = asked.pythons or shutil.which("python", path=environment.get("PATH", os.defpath))
    return _with_tool(asked, limit_s, "python" if found else "python3")


def _with_tool(asked: Asked, limit_s: float, python: str) -> Job:
    """A run of another tool's benchmarks, or of the arms in a Python file."""
    if asked.script:
        launcher = str(machine.checkout_root() / "gpulift")
        program = (sys.executable, sys.argv[0]) if place.INSTALLED else (launcher,)
        bench = (*program, "bench", asked.script, "--launches", "1", "--out", OUT)
        return Job(Path(asked.script).stem, (*bench, *asked.command), _script, limit_s)
    named, *more = asked.command
    if asked.with_tool == "pytest":
        # Enabled, since a configuration may disable what is asked for here.
        flags = ("-q", "-p", "no:cacheprovider", "--benchmark-enable", f"--benchmark-json={OUT}")
        command = (python, "-m", "pytest", named, *flags, *more)
        return Job("pytest", command, _pytest, limit_s)
    wanted, read = {
        "gbench": ((f"--benchmark_out={OUT}", "--benchmark_out_format=json"), read_gbench),
        "nvbench": (("--json", OUT), read_nvbench),
    }[asked.with_tool]
    return Job(Path(named).name, (_program(named), *wanted, *more), _rows(read), limit_s)


def _pytest(run: Finished) -> dict[str, Reading | Untimed]:
    return read_pytest(run.out, run.printed + run.errors).rows


def _rows(read: Callable[[Path], Benchmarks]) -> Read:
    return lambda run: read(run.out).rows


def _program(named: str) -> str:
    """A path from the side's folder, which exec would look for on PATH without a slash."""
    return named if "/" in named else f"./{named}"


def _times(records: Iterable[tuple[str, Record]]) -> dict[str, Reading | Untimed]:
    """Seconds of a step of each arm, or why there are none, by the name given with its record and
    its own where there are several."""
    rows: dict[str, Reading | Untimed] = {}
    for name, record in records:
        if not record.arms:
            rows[name] = Untimed(record.reason, record.outcome == SKIPPED)
        for arm in record.arms:
            row = "/".join(filter(None, (name, arm.name if len(record.arms) > 1 else "")))
            time = stats.step_time([record], arm.name)
            untimed = Untimed(arm.reason or "has no windows", arm.outcome == SKIPPED)
            rows[row] = Reading(time.value, "s") if time else untimed
    return rows


def _script(run: Finished) -> dict[str, Reading | Untimed]:
    records = [one for results in read_results([run.out]) for one in results.records]
    if not records:
        raise NoNumberError("no arm was run")
    return _times((record.case_id, record) for record in records)


def _sides(
    asked: Asked, environment: Mapping[str, str], held: ExitStack, say: Say
) -> tuple[JobSide, JobSide, Path, Path | None]:
    """Both sides, where the evidence goes by default, and the user's checkout; the sides' folders
    are `held`."""
    if asked.pythons is not None:
        base, head = (
            _of_python(option, named, environment)
            for option, named in zip(PYTHONS, asked.pythons, strict=True)
        )
        if base.python == head.python:
            head = replace(head, name=f"{head.name}, {THE_SAME}")
        return base, head, cache_folder(environment), None
    repository = Repository.here(Path.cwd())
    base_commit = repository.commit(asked.base or "")
    if asked.head is None:
        head_commit, head_said = repository.as_it_is()
        if asked.certified and head_commit != repository.commit("HEAD"):
            raise GpuliftError(f"--certificate is of commits: commit the changes of {CHANGED}")
    else:
        head_commit = repository.commit(asked.head)
        head_said = f"{asked.head} ({head_commit[:7]})"
    if repository.tree(base_commit) == repository.tree(head_commit):
        head_said += f", {THE_SAME}"
    held.enter_context(repository.held([base_commit, head_commit], environment, say))
    base, head = (
        repository.side(commit, said, asked.setup, environment, asked.timeout_s, say)
        for commit, said in (
            (base_commit, f"{asked.base} ({base_commit[:7]})"),
            (head_commit, head_said),
        )
    )
    return base, head, repository.cache(environment), repository.root


def _of_python(option: str, named: str, environment: Mapping[str, str]) -> JobSide:
    """A side that differs in its interpreter alone; refuses what is no Python."""
    python = machine.find_python(option, named, (2, 0))
    return JobSide(named, Path.cwd(), environment_of(python, environment), python=python)


def _setup(asked: Asked, job: Job, sides: tuple[JobSide, JobSide], runs: tuple[Run, Run]) -> Setup:
    """The rows that either side has, of which those with a number of both are measured."""
    (base, head), (first, second) = sides, runs
    names = [*first.values, *second.values, *first.untimed, *second.untimed]
    rows = {name: Row(job.suite, "", name) for name in names}
    untimed = first.untimed.keys() | second.untimed.keys()
    if not (first.values.keys() & second.values.keys() or untimed):
        raise GpuliftError("not comparable: base and head have no row in common", NOT_COMPARABLE)
    told = {row.id: why for name, row in rows.items() if (why := _why_alone(name, first, second))}
    changes = thresholds.of_rows(
        asked.thresholds, [(row.technique, row.id) for row in rows.values()]
    )
    return Setup(
        method=DECISION_METHOD,
        mode=COMMANDS,
        base=base.name,
        head=head.name,
        machine=conditions.processor(),
        certificate="",
        seed=asked.seed,
        rows=tuple(rows.values()),
        unmeasurable={row: why for row, (word, why) in told.items() if word == SKIPPED},
        broken={row: why for row, (word, why) in told.items() if word == ERROR},
        lost={row: why for row, (word, why) in told.items() if word == INCONCLUSIVE},
        least=asked.threshold,
        equivalent=AIM * asked.threshold,  # which the screen goes on to see
        least_changes=changes,
        planted_by_command=bool(asked.plant),
        first_s={BASE: first.seconds, HEAD: second.seconds},
        equal=asked.same.equal,
        origin=replace(
            asked.origin,
            base=base.commit,
            head=head.commit,
            conditions=conditions.of_command(asked.gpu),
        ),
    )


def _why_alone(name: str, base: Run, head: Run) -> tuple[str, str] | None:
    """The verdict on a row that the sides do not both have a number of, and why."""
    if name in base.values and name in head.values:
        return None
    before, after = base.untimed.get(name), head.untimed.get(name)
    if before and not before.skipped:
        return INCONCLUSIVE, f"no base: {before.reason}"
    if after and not after.skipped:
        return ERROR, f"head: {after.reason}"
    if before:
        return SKIPPED, before.reason
    if name not in base.values:
        return SKIPPED, after.reason if after else "only in the head"
    if after:
        return ERROR, f"head skips what the base measures: {after.reason}"
    return INCONCLUSIVE, "only in the base"


def pairs_of_launch(each_s: float) -> int:
    """An odd number, by the seconds of a pair."""
    return max(1, min(MOST_PAIRS, int(SHORT_S / max(each_s, 1e-3)) - 1 | 1))
