"""`gpulift bisect --good REF --bad REF -- CMD`: the commit that made a command slower."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from gpulift.commands.shared import Gpu
from gpulift.gate.ancestry import Ancestry
from gpulift.gate.answer import answer
from gpulift.gate.asked import THRESHOLD, TIMEOUT_S, Asked
from gpulift.gate.commands import callers_environment
from gpulift.gate.metrics import Metric
from gpulift.gate.plan import measured, planned
from gpulift.gate.repositories import Repository
from gpulift.ground import text
from gpulift.ground.arguments import time_s
from gpulift.ground.entry import say
from gpulift.ground.errors import FAILED, INCONCLUSIVE, OK, GpuliftError
from gpulift.verdicts import table
from gpulift.verdicts.row import FAILED as WORSE
from gpulift.verdicts.row import LEFT_OUT, OPEN, PASSED, Row, Table

LARGEST = 0.9  # that is looked for: a threshold is a fraction


Judge = Callable[[str, str], Row]  # of a base and a head


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
    ] = THRESHOLD,
    budget: Annotated[str | None, typer.Option(help="Time of each gate: 300s, 10m, 1h.")] = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds that a run, or a set-up, may take.")
    ] = TIMEOUT_S,
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
    asked = Asked(
        started_s=0.0,  # each has its own
        command=tuple(command),
        metrics=(source,) if source else (),
        setup=setup,
        threshold=threshold,
        budget_s=None if budget is None else time_s("--budget", budget),
        timeout_s=timeout,
        gpu=gpu,
        seed=seed,
    )
    environment = callers_environment()
    judged: list[Row] = []

    def judge(base: str, head: str) -> Row:
        ends = judged[0].estimate if judged else None
        least = max(threshold, half_of(ends.value)) if ends else threshold
        now_s = time.monotonic()
        both = replace(asked, base=base, head=head, threshold=least, started_s=now_s)
        try:
            with planned(both, environment, say) as plan:
                row = row_of(answer(measured(plan), plan.folder))
        except GpuliftError as error:
            if error.exit_code != FAILED and not judged:  # of the ends, so of all
                raise
            row = Row(
                "head/base", head, "error", OPEN, reason=str(error)
            )  # it cannot be built, or run
        say(f"{head[:7]} against {base[:7]}: {said(row)}")
        judged.append(row)
        return row

    repository = Repository.here(Path.cwd())
    ends = (repository.commit(good), repository.commit(bad))
    culprit, parent = search(Ancestry(repository.root), judge, ends, f"{good} and {bad}")
    typer.echo(f"{repository.described(culprit)} made it slower; its parent {parent[:7]} is not")
    raise typer.Exit(OK)


def row_of(made: Table) -> Row:
    """That of the number that is bisected."""
    return next((row for row in made.rows if row.kind != LEFT_OUT), made.rows[0])


def said(row: Row) -> str:
    """What is said of a commit against another."""
    word = {WORSE: "worse", PASSED: "no worse"}.get(row.kind)
    why = table.figures(row) if word else table.why(row)
    return ": ".join(filter(None, (word or "cannot be told", why)))


def half_of(ratio: float) -> float:
    """What is looked for between ends that differ by this ratio: two such steps make it. A commit
    is on one side of it or on the other, which takes fewer pairs than a change of 1 %."""
    return min(math.sqrt(max(ratio, 1 / ratio)) - 1, LARGEST)


def search(ancestry: Ancestry, judge: Judge, both: tuple[str, str], ends: str) -> tuple[str, str]:
    """The first commit that is worse than the good one, and its parent. Raises GpuliftError where
    that cannot be told."""
    good, bad = both
    shared = _shared(ancestry, judge, both, ends)
    goods, untold = list(shared), dict[str, Row]()
    while left := [one for one in ancestry.between(goods, bad) if one not in untold]:
        say(f"{text.counted(len(left), 'commit')} left to look at")
        row = judge(good, left[0])
        if row.kind == WORSE:
            bad = left[0]
        elif row.kind == PASSED:
            goods.append(left[0])
        else:
            untold[left[0]] = row
    if passed := ancestry.between(goods, bad):
        names = ", ".join(commit[:7] for commit in (*passed, bad))
        why = "; ".join(dict.fromkeys(said(untold[commit]) for commit in passed))
        raise GpuliftError(f"it is one of {names}: all but the last {why}", INCONCLUSIVE)
    parent = ancestry.parent(bad, shared)
    if parent != good and (row := judge(parent, bad)).kind != WORSE:
        raise GpuliftError(
            f"{bad[:7]} is the first that is worse than {good[:7]}, but against its parent"
            f" {parent[:7]} it is {said(row)}: it came in several steps, or by chance",
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
    if (row := judge(good, bad)).kind != WORSE:
        what = "the second is" if row.kind == PASSED else "whether they differ"
        raise GpuliftError(f"{ends}: {what} {said(row)}", INCONCLUSIVE)
    for fork in shared:
        if fork != good and (row := judge(good, fork)).kind != PASSED:
            raise GpuliftError(
                f"{ends} part at {fork[:7]}, which against the first is {said(row)}: name a --good"
                " that the second follows",
                INCONCLUSIVE,
            )
    return shared
