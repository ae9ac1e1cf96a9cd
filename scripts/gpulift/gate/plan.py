"""A gate, taken whole: what is asked becomes a plan, that is measured, and what came out judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime, timezone
from pathlib import Path

from gpulift.engine.runs import discard_if_empty
from gpulift.gate import commands, techniques
from gpulift.gate.asked import Asked
from gpulift.gate.evidence import read_evidence, require_one_machine, save
from gpulift.gate.judge import GateResult, judge
from gpulift.gate.measure import Plan, measure
from gpulift.ground.errors import NOT_COMPARABLE, GpuliftError
from gpulift.verdicts.decision import DECISION_METHOD


@contextmanager
def planned(
    asked: Asked, environment: Mapping[str, str], say: Callable[[str], None]
) -> Iterator[Plan]:
    """The plan; the folders of both sides are held meanwhile."""
    with ExitStack() as held:
        plan = (
            commands.plan(asked, environment, held, say)
            if asked.of_command
            else techniques.plan(asked, say)
        )
        try:
            yield plan
        finally:  # of what is refused before anything is measured
            discard_if_empty(plan.folder)


def measured(plan: Plan) -> GateResult:
    """Measures and judges; notes in the evidence that it ended: one that the budget broke off has
    no result, as after an interrupt."""
    try:
        evidence = measure(plan)
    except KeyboardInterrupt:
        plan.say(f"what was measured is kept in {plan.folder}")
        raise
    require_one_machine(plan.folder)
    result = judge(evidence)
    if evidence.ended:
        counts = {word: count for word, count in result.counts.items() if count}
        at = datetime.now(timezone.utc).isoformat(timespec="seconds")
        ended = {"counts": counts, "exit_code": result.exit_code, "ended_at": at}
        save(plan.folder, evidence.setup, ended)
    return result


def judged_again(folder: Path) -> GateResult:
    """The verdicts of a gate from its evidence; refuses those of another decision method."""
    evidence = read_evidence(folder)
    if evidence.setup.method != DECISION_METHOD:
        raise GpuliftError(
            f"{folder} was judged by decision method {evidence.setup.method}, and this is"
            f" {DECISION_METHOD}: check out the commit that made it",
            NOT_COMPARABLE,
        )
    require_one_machine(folder)
    return judge(evidence)
