"""`gpulift bisect --good REF --bad REF -- CMD`: the commit that made a command slower."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from gpulift.commands import gate_jobs
from gpulift.commands.shared import Gpu
from gpulift.gate.ancestry import Ancestry
from gpulift.gate.judge import GateResult
from gpulift.gate.metrics import Metric
from gpulift.gate.repositories import Repository
from gpulift.ground import text
from gpulift.ground.arguments import time_s
from gpulift.ground.entry import say
from gpulift.ground.errors import FAILED, INCONCLUSIVE, OK, GpuliftError
from gpulift.verdicts.decision import EQUIVALENT, IMPROVED, REGRESSED, SKIPPED

WORSE, SAME, UNTOLD = "worse", "no worse", "cannot be told"
LARGEST = 0.9  # that is looked for: a threshold is a fraction


@dataclass(frozen=True)
class Found:
    """What is said of a commit against another, how many times as long it takes or why that cannot
    be told."""

    word: str
    why: str = ""
    ratio: float = 1.0

    def __str__(self) -> str:
        return f"{self.word}{': ' if self.why else ''}{self.why}"


Judge = Callable[[str, str], Found]  # of a base and a head


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
    judged: list[Found] = []

    def judge(base: str, head: str) -> Found:
        least = max(threshold, half_of(judged[0].ratio)) if judged else threshold
        both = replace(asked, base=base, head=head, threshold=least)
        try:
            found = found_in(gate_jobs.run(both, environment)[0])
        except GpuliftError as error:
            if error.exit_code != FAILED and not judged:  # of the ends, so of all
                raise
            found = Found(UNTOLD, str(error))  # it does not build, or cannot run
        say(f"{head[:7]} against {base[:7]}: {found}")
        judged.append(found)
        return found

    repository = Repository.here(Path.cwd())
    ends = (repository.commit(good), repository.commit(bad))
    culprit, parent = search(Ancestry(repository.root), judge, ends, f"{good} and {bad}")
    typer.echo(f"{repository.described(culprit)} made it slower; its parent {parent[:7]} is not")
    raise typer.Exit(OK)


def found_in(result: GateResult) -> Found:
    """What a gate of one number says of its head."""
    rows = [one.verdict for one in result.rows]
    verdict = next((one for one in rows if one.verdict != SKIPPED), rows[0])
    word = {REGRESSED: WORSE, EQUIVALENT: SAME, IMPROVED: SAME}.get(verdict.verdict, UNTOLD)
    ratio = verdict.difference.ratio.value if verdict.difference else 1.0
    return Found(word, verdict.reason if word == UNTOLD else f"{ratio:.3f} times as long", ratio)


def half_of(ratio: float) -> float:
    """What is looked for between ends that differ by this ratio: two such steps make it. A commit
    is on one side of it or on the other, which takes fewer pairs than a change of 1 %."""
    return min(math.sqrt(ratio) - 1, LARGEST)


def search(ancestry: Ancestry, judge: Judge, both: tuple[str, str], ends: str) -> tuple[str, str]:
    """The first commit that is worse than the good one, and its parent. Raises GpuliftError where
    that cannot be told."""
    good, bad = both
    shared = _shared(ancestry, judge, both, ends)
    goods, untold = list(shared), dict[str, Found]()
    while left := [one for one in ancestry.between(goods, bad) if one not in untold]:
        say(f"{text.counted(len(left), 'commit')} left to look at")
        found = judge(good, left[0])
        if found.word == WORSE:
            bad = left[0]
        elif found.word == SAME:
            goods.append(left[0])
        else:
            untold[left[0]] = found
    if passed := ancestry.between(goods, bad):
        names = ", ".join(commit[:7] for commit in (*passed, bad))
        why = "; ".join(dict.fromkeys(str(untold[commit]) for commit in passed))
        raise GpuliftError(f"it is one of {names}: all but the last {why}", INCONCLUSIVE)
    parent = ancestry.parent(bad, shared)
    if parent != good and (found := judge(parent, bad)).word != WORSE:
        raise GpuliftError(
            f"{bad[:7]} is the first that is worse than {good[:7]}, but against its parent"
            f" {parent[:7]} it is {found}: it came in several steps, or by chance",
            INCONCLUSIVE,
        )
    return bad, parent


def _shared(ancestry: Ancestry, judge: Judge, both: tuple[str, str], ends: str) -> list[str]:
    """Where the search begins: the good one, or commits as good that the bad one follows, too."""
    good, bad = both
    shared = ancestry.shared(good, bad)
    if bad in shared:
        raise GpuliftError(f"there is no commit between {ends}: --good names the earlier one")
    if not shared:
        raise GpuliftError(
            f"{ends} have no commit in common; in a shallow clone git fetch --unshallow gets it"
        )
    if (found := judge(good, bad)).word != WORSE:
        told = "whether they differ" if found.word == UNTOLD else "the second is"
        raise GpuliftError(f"{ends}: {told} {found}", INCONCLUSIVE)
    for fork in shared:
        if fork != good and (found := judge(good, fork)).word != SAME:
            raise GpuliftError(
                f"{ends} part at {fork[:7]}, which against the first is {found}: name a --good that"
                " the second follows",
                INCONCLUSIVE,
            )
    return shared
