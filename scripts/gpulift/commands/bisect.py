"""`gpulift bisect --good REF --bad REF -- CMD`: the commit that made a command slower."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from gpulift.commands import gate_jobs
from gpulift.commands.shared import Gpu
from gpulift.gate.metrics import Metric
from gpulift.gate.repositories import Repository
from gpulift.ground.arguments import time_s
from gpulift.ground.entry import say
from gpulift.ground.errors import FAILED, INCONCLUSIVE, OK, GpuliftError
from gpulift.verdicts.decision import EQUIVALENT, IMPROVED, REGRESSED, SKIPPED

WORSE, SAME, UNTOLD = "worse", "no worse", "cannot be told"
Judge = Callable[[str, str], str]  # of a base and a head


def bisect(
    command: Annotated[
        list[str], typer.Argument(metavar="-- CMD...", help="What is run at each commit.")
    ],
    good: Annotated[str, typer.Option(help="Git reference at which it was fast.")],
    bad: Annotated[str, typer.Option(help="Git reference at which it is slow.")] = "HEAD",
    metric: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="As of `gate`; the wall time by default.")
    ] = None,
    higher: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="A metric of which more is better.")
    ] = None,
    setup: Annotated[
        str, typer.Option(metavar="CMD", help="Shell command that prepares a checkout once.")
    ] = "",
    threshold: Annotated[
        float, typer.Option(help="The least change that is called one; half of a larger one is.")
    ] = gate_jobs.THRESHOLD,
    budget: Annotated[str | None, typer.Option(help="Time of each gate: 300s, 10m, 1h.")] = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds that a run, or a set-up, may take.")
    ] = gate_jobs.TIMEOUT_S,
    gpu: Gpu = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of orders.")] = 1,
) -> None:
    """Gates commits between two references against the good one, half of what is left each time.

    It begins by showing by how much the bad one is slower, looks for half of that, and ends by
    showing it of the commit that it names, against its parent. Exit code 5 where that cannot be
    told.
    """
    if metric and higher:
        raise GpuliftError("give one of --metric and --higher: one number is bisected")
    source = Metric(higher, higher=True) if higher else Metric(metric) if metric else None
    asked = gate_jobs.JobAsked(
        doors=gate_jobs.Doors(tuple(command)),
        base=None,
        head=None,
        pythons=None,
        metrics=(source,) if source else (),
        setup=setup,
        plant="",
        threshold=threshold,
        thresholds={},
        budget_s=None if budget is None else time_s("--budget", budget),
        timeout_s=timeout,
        gpu=gpu,
        seed=seed,
        out=None,
    )

    environment = gate_jobs.callers_environment()
    least = threshold

    def judge(base: str, head: str) -> str:
        nonlocal least
        both = replace(asked, base=base, head=head, threshold=least)
        try:
            result, _ = gate_jobs.run(both, environment)
        except GpuliftError as error:
            if error.exit_code != FAILED:
                raise
            say(f"{head[:7]} {UNTOLD}: {error}")  # it does not build, or does not run
            return UNTOLD
        (row,) = (one for one in result.rows if one.verdict.verdict != SKIPPED)
        verdict = row.verdict.verdict
        found = {REGRESSED: WORSE, EQUIVALENT: SAME, IMPROVED: SAME}.get(verdict, UNTOLD)
        factor = row.verdict.difference
        times = f", {factor.ratio.value:.3f} times as long" if factor else ""
        say(f"{head[:7]} against {base[:7]}: {found}{times}")
        if factor and found == WORSE and least == threshold:  # of the two ends, which come first
            least = max(threshold, half_of(factor.ratio.value))
        return found

    repository = Repository.here(Path.cwd())
    commits = [repository.commit(good), *repository.between(good, bad)]
    culprit, parent = search(commits, judge, f"{good} and {bad}")
    typer.echo(f"{repository.described(culprit)} made it slower; its parent {parent[:7]} is not")
    raise typer.Exit(OK)


def half_of(ratio: float) -> float:
    """What is looked for between ends that differ by this ratio: two such steps make it. A commit
    is on one side of it or on the other, which takes fewer pairs than a change of 1 %."""
    return math.sqrt(ratio) - 1


def search(commits: Sequence[str], judge: Judge, ends: str) -> tuple[str, str]:
    """The first commit that is worse, and the one before it; the first is the good one. Raises
    GpuliftError where that cannot be told."""
    good = commits[0]
    if len(commits) < 2:
        raise GpuliftError(f"there is no commit between {ends}")
    if (found := judge(good, commits[-1])) != WORSE:
        told = "whether they differ" if found == UNTOLD else "the second"
        verb = "" if found == UNTOLD else "is "
        raise GpuliftError(f"{ends}: {told} {verb}{found}", INCONCLUSIVE)
    low, high = 0, len(commits) - 1
    untold: set[int] = set()
    while left := [at for at in range(low + 1, high) if at not in untold]:
        say(f"{high - low - 1} commits are left to look at")
        middle = min(left, key=lambda at: abs(2 * at - low - high))
        found = judge(good, commits[middle])
        if found == WORSE:
            high = middle
        elif found == SAME:
            low = middle
        else:
            untold.add(middle)
    if high - low > 1:
        names = ", ".join(commit[:7] for commit in commits[low + 1 : high + 1])
        raise GpuliftError(f"it is one of {names}: the others cannot be told", INCONCLUSIVE)
    culprit, parent = commits[high], commits[low]
    if low > 0 and (found := judge(parent, culprit)) != WORSE:
        raise GpuliftError(
            f"{culprit[:7]} is the first that is worse than {good[:7]}, but against its parent"
            f" {parent[:7]} it is {found}: it came in several steps, or by chance",
            INCONCLUSIVE,
        )
    return culprit, parent
