"""`gpulift gate --base REF -- CMD`: somebody's own command in any repository, head against base."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import time as clock
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

import typer

from gpulift.engine import machine
from gpulift.engine.runs import discard_if_empty, make_new
from gpulift.gate import conditions, job_output
from gpulift.gate.benchmark_files import Benchmarks, read_gbench, read_nvbench, read_pytest
from gpulift.gate.evidence import BASE, COMMANDS, HEAD, Origin, Row, Setup, save
from gpulift.gate.git import of_no_git
from gpulift.gate.instructions import counting
from gpulift.gate.jobs import OUT, Job, Jobs, JobSide, Read, environment_of
from gpulift.gate.judge import GateResult, judge
from gpulift.gate.measure import Budget, Gate, measure
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
from gpulift.gate.same import Outputs
from gpulift.gate.setup import require_new
from gpulift.gate.trials import first_runs
from gpulift.ground import place
from gpulift.ground.arguments import require_above_0
from gpulift.ground.entry import say
from gpulift.ground.errors import NOT_COMPARABLE, GpuliftError
from gpulift.ground.programs import job_environment
from gpulift.ground.text import visible
from gpulift.ground.whole import write_whole
from gpulift.records.model import Record
from gpulift.records.read import read_results
from gpulift.verdicts import stats, thresholds
from gpulift.verdicts.decision import AIM, DECISION_METHOD, ERROR, INCONCLUSIVE, SKIPPED

THRESHOLD = 0.01  # processes vary more than the windows of one
TIMEOUT_S = 3600.0
LEAST_LAUNCHES = 24  # the first look, base against base, and what is planted until it is confirmed
SHORT_S = 3.0  # a launch, with as many pairs as fit, of which it takes the median
MOST_PAIRS = 5
MORE = 1.5  # times that, of long commands, and never less than the usual time
USUAL_S = 300.0
PYTHONS = ("--base-python", "--head-python")
CHANGED = "this checkout, or name --head"
THE_SAME = "the same as the base, so that only noise can differ"


@dataclass(frozen=True)
class Doors:
    """What is run, of which one is asked for: a command, or another tool's benchmarks."""

    command: tuple[str, ...] = ()
    script: str = ""
    gbench: str = ""
    nvbench: str = ""
    pytest: str = ""


def doors(
    same: str | None,
    command: Sequence[str] | None,
    gbench: str | None,
    nvbench: str | None,
    pytest: str | None,
) -> Doors | None:
    """What is run besides gpulift's own techniques; None where that is nothing."""
    script = same if same and same.endswith(".py") and Path(same).is_file() else ""
    if command and same and not script:
        raise GpuliftError(f"{same!r} is one argument too many: a command stands behind --")
    tools = [one for one in (gbench, nvbench, pytest, script) if one]
    if len(tools) > 1:
        raise GpuliftError("give one of --gbench, --nvbench, --pytest, or one Python file")
    if not tools and not command:
        return None
    return Doors(tuple(command or ()), script, gbench or "", nvbench or "", pytest or "")


@dataclass(frozen=True)
class JobAsked:
    """What the user asked for."""

    doors: Doors
    base: str | None
    head: str | None
    pythons: tuple[str, str] | None
    metrics: tuple[Metric, ...]
    setup: str
    plant: str
    threshold: float
    thresholds: Mapping[str, float]
    budget_s: float | None
    timeout_s: float
    gpu: int | None
    seed: int
    out: Path | None
    same: Outputs = field(default_factory=lambda: Outputs(()))
    origin: Origin = field(default_factory=Origin)
    certified: bool = False

    def __post_init__(self) -> None:
        require_above_0("--timeout", self.timeout_s)
        if not 0 < self.threshold < 1:
            raise GpuliftError(f"--threshold {self.threshold:g}: a fraction, as 0.02 for 2 %")
        if self.out is not None:
            require_new(self.out)


def callers_environment() -> dict[str, str]:
    """What commands get; ./gpulift hands it over once, so that it is asked for once."""
    return of_no_git(job_environment() or os.environ)


def run(asked: JobAsked, callers: Mapping[str, str]) -> tuple[GateResult, Path]:
    """Measures and judges; returns the verdicts and the folder of the evidence."""
    environment = {**callers}
    if asked.gpu is not None:
        environment["CUDA_VISIBLE_DEVICES"] = str(asked.gpu)
    with ExitStack() as held:
        return _run(asked, environment, held)


def _run(
    asked: JobAsked, environment: Mapping[str, str], held: ExitStack
) -> tuple[GateResult, Path]:
    started_s = clock.monotonic()
    job = _job(asked, environment)
    base, head, cache, checkout = _sides(asked, environment, held)
    base_run, head_run, head = first_runs(job, base, head, checkout, say)
    setup = _setup(asked, job, base, head, base_run, head_run)
    each_s = base_run.seconds + head_run.seconds
    pairs = pairs_of_launch(each_s)
    spent_s = clock.monotonic() - started_s
    budget_s = asked.budget_s or spent_s + max(USUAL_S, MORE * LEAST_LAUNCHES * pairs * each_s)
    say(
        f"a run takes {each_s / 2:.3g} s, a launch has {pairs} of either side:"
        f" {LEAST_LAUNCHES * pairs * each_s:.0f} s at least,"
        f" {budget_s:.0f} s at most (--budget)"
    )
    day = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    gate = Gate(
        folder=asked.out or make_new(cache / "runs", day),
        taker=Jobs(job, base, head, say, pairs),
        on_gpu=frozenset(),
        launch_bound=frozenset(),
        budget=Budget(budget_s, pairs * each_s, used_s=spent_s),
        say=say,
    )
    try:
        evidence = measure(gate, setup)
    except KeyboardInterrupt:
        say(f"what was measured is kept in {gate.folder}")
        raise
    finally:
        discard_if_empty(gate.folder)
    result = judge(evidence)
    if evidence.ended:
        counts = {word: count for word, count in result.counts.items() if count}
        at = datetime.now(timezone.utc).isoformat(timespec="seconds")
        found = {"counts": counts, "exit_code": result.exit_code, "ended_at": at}
        save(gate.folder, evidence.setup, found)
    return result, gate.folder


def show(
    result: GateResult, folder: Path, as_json: bool, as_markdown: bool, bmf: Path | None
) -> None:
    """The verdicts, in the way that was asked for."""
    if bmf is not None:
        write_whole(job_output.bencher(result, folder) + "\n", bmf)
    if as_json:
        document = {**job_output.as_json(result, folder), "evidence": str(folder)}
        typer.echo(json.dumps(document, indent=2, allow_nan=False))
        return
    for text in (job_output.markdown if as_markdown else job_output.lines)(result, folder):
        typer.echo(visible(text))
    if not as_markdown:
        typer.echo(f"evidence: {visible(str(folder))}")


def _job(asked: JobAsked, environment: Mapping[str, str]) -> Job:
    doors, limit_s = asked.doors, asked.timeout_s
    slowed = tuple(shlex.split(asked.plant))
    if not any((doors.gbench, doors.nvbench, doors.pytest, doors.script)):
        metrics = asked.metrics or (Metric(WALL),)
        names = [metric.name for metric in metrics]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice:
            raise GpuliftError(
                f"two metrics are called {twice}: name the group of one, as in (?P<loss>...)"
            )
        suite = Path(doors.command[0]).name
        counted = INSTRUCTIONS in (metric.source for metric in metrics)
        with counting(counted):  # refuses it before a set-up is run
            pass
        return Job(
            suite,
            doors.command,
            lambda run: read_all(metrics, run),
            limit_s,
            slowed,
            asked.same,
            counted,
        )
    if asked.metrics:
        raise GpuliftError("--metric is for a command behind --; these tools say their own numbers")
    if slowed or asked.same.sources:
        raise GpuliftError(f"{'--plant' if slowed else '--same'} is for a command behind --")
    path = environment.get("PATH", os.defpath)
    found = asked.pythons or shutil.which("python", path=path)
    suite, command, read = _tool(doors, "python" if found else "python3")
    return Job(suite, (*command, *doors.command), read, limit_s)


def _tool(doors: Doors, python: str = "python") -> tuple[str, tuple[str, ...], Read]:
    """The name, the command and the reader of another tool's benchmarks."""
    if doors.gbench:
        wanted = (f"--benchmark_out={OUT}", "--benchmark_out_format=json")
        return Path(doors.gbench).name, (_program(doors.gbench), *wanted), _rows(read_gbench)
    if doors.nvbench:
        return (
            Path(doors.nvbench).name,
            (_program(doors.nvbench), "--json", OUT),
            _rows(read_nvbench),
        )
    if doors.pytest:
        # Enabled, since a configuration may disable what is asked for here.
        flags = ("-q", "-p", "no:cacheprovider", "--benchmark-enable", f"--benchmark-json={OUT}")
        command = (python, "-m", "pytest", doors.pytest, *flags)
        return "pytest", command, lambda run: read_pytest(run.out, run.printed + run.errors).rows
    launcher = str(machine.checkout_root() / "gpulift")
    program = (sys.executable, sys.argv[0]) if place.INSTALLED else (launcher,)
    bench = (*program, "bench", doors.script)
    return (
        Path(doors.script).stem,
        (*bench, "--launches", "1", "--out", OUT),
        _script,
    )


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
    asked: JobAsked, environment: Mapping[str, str], held: ExitStack
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


def _setup(
    asked: JobAsked, job: Job, base: JobSide, head: JobSide, first: Run, second: Run
) -> Setup:
    """The rows that either side has, of which those with a number of both are measured."""
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
