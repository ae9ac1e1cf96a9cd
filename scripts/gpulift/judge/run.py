"""One judge: the task, both sides, what was found, as a gate has it."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from statistics import median

from gpulift.engine.runs import discard_if_empty, make_new
from gpulift.gate.evidence import BASE, COMMANDS, HEAD, Setup, save
from gpulift.gate.judge import GateResult, judge
from gpulift.gate.measure import Budget, Plan, measure
from gpulift.ground import text
from gpulift.ground.errors import FAILED, NOT_COMPARABLE, GpuliftError
from gpulift.judge import roofs
from gpulift.judge.roofs import Roofs
from gpulift.judge.side import Limits, RefusedError
from gpulift.judge.task import Source, Task
from gpulift.judge.trials import Trials, row_of
from gpulift.verdicts.decision import AIM, DECISION_METHOD

REFUSED = "refused"
USUAL_S = 300.0
SHORT_HASH = 12


@dataclass(frozen=True)
class Asked:
    """What the user asked for; a roof that is None is measured."""

    task: Task
    base: Source
    head: Source
    threshold: float
    limits: Limits
    budget_s: float | None
    bandwidth: float | None
    operations: float | None
    out: Path | None


@dataclass(frozen=True)
class Refusal:
    """A side that is none, and what the other one takes all the same."""

    side: str
    reason: str
    other: str
    other_s: float | None  # of a call; None where it is none either

    @property
    def exit_code(self) -> int:
        """A base that is refused is nothing to compare with."""
        return NOT_COMPARABLE if self.side == BASE else FAILED

    @property
    def line(self) -> str:
        """The verdict for people."""
        stands = (
            f"the {self.other} takes {text.seconds(self.other_s)} a call"
            if self.other_s is not None
            else f"the {self.other} is refused, too"
        )
        return f"{REFUSED:<13}{self.side}: {self.reason}; {stands}"


@dataclass(frozen=True)
class Judged:
    """What came out, and on what conditions."""

    found: GateResult | Refusal
    conditions: tuple[str, ...]
    folder: Path


def run(asked: Asked, machine: str, cache: Path, say: Callable[[str], None]) -> Judged:
    """Measures and judges."""
    began_s = time.monotonic()
    trials = Trials(asked.task, {BASE: asked.base, HEAD: asked.head}, roofs_of(asked), asked.limits)
    day = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    folder = asked.out or make_new(cache / "judge", day)
    try:
        say(f"one launch of {asked.base.name} and {asked.head.name} to begin with")
        trials.try_once()
        budget_s = asked.budget_s or USUAL_S
        planned_s = time.monotonic() - began_s
        say(f"a window has {trials.calls} calls; {budget_s:.0f} s at most (--budget)")
        budget = Budget(budget_s, planned_s, used_s=planned_s)
        evidence = measure(Plan(_setup(asked, machine), folder, trials, budget, say))
        found: GateResult | Refusal = judge(evidence)
        if evidence.ended:
            save(folder, evidence.setup, {"exit_code": found.exit_code})
    except RefusedError as refused:
        found = refusal(trials, refused)
    finally:
        discard_if_empty(folder)
    return Judged(found, tuple(conditions(asked, trials)), folder)


def refusal(trials: Trials, refused: RefusedError) -> Refusal:
    """With the numbers of the other side: those that it has, or else of a window of its own."""
    other = HEAD if refused.side == BASE else BASE
    try:
        found: float | None = (
            median(trials.times[other]) if trials.times.get(other) else trials.alone(other)
        )
    except RefusedError:
        found = None
    return Refusal(refused.side, refused.reason, other, found)


def roofs_of(asked: Asked) -> Roofs:
    """As told; what is not told is measured."""
    if asked.bandwidth is not None and asked.operations is not None:
        return Roofs(asked.bandwidth, asked.operations)
    if asked.task.arrays == "cuda":
        raise GpuliftError("a task on a card needs --bandwidth and --flops of its data sheet")
    found = roofs.measured()
    return Roofs(asked.bandwidth or found.bandwidth, asked.operations or found.operations)


def conditions(asked: Asked, trials: Trials) -> list[str]:
    """What the verdict stands on."""
    bounds = ", ".join(
        f"{name} {low} to {high}" for name, (low, high, _) in asked.task.shapes.items()
    )
    return [
        f"task {asked.task.name}, {bounds}; inputs fresh for each call of a pair",
        f"clock: from inputs published to outputs sealed, through {trials.through}",
        f"roofs: {text.rate(trials.roofs.bandwidth, 'B/s')},"
        f" {text.rate(trials.roofs.operations, 'FLOP/s')}",
        trials.walls or "isolated: nothing was started",
    ]


def named(source: Source) -> str:
    """A file by its name and hash."""
    return f"{source.name} ({hashlib.sha256(source.text).hexdigest()[:SHORT_HASH]})"


def _setup(asked: Asked, machine: str) -> Setup:
    return Setup(
        method=DECISION_METHOD,
        mode=COMMANDS,
        base=named(asked.base),
        head=named(asked.head),
        machine=machine,
        certificate="",
        seed=int.from_bytes(os.urandom(4), "big"),
        rows=(row_of(asked.task),),
        least=asked.threshold,
        equivalent=AIM * asked.threshold,
    )
