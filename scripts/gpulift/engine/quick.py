"""What `--quick` measures: the cases that tell most per second, as many as its time allows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gpulift.engine.machine import CaseInfo, TechniqueInfo
from gpulift.ground.text import counted
from gpulift.records.model import Context

JOB = "job/step"  # what a card is measured by first, after its ceilings
FEEDING = "input/pipeline"  # a host without a GPU
LAUNCHES = 3
FIRST_SHARE = 0.9  # of a qualification's time: the rest is for what is then open
ARM_TIME_S = 0.2  # of gpulift-bench, with --quick
ARM_S = 0.4  # of an arm in a launch, with its check and lead-in: 16 cases of an H100 took 75 s
INTERPRETER_S = 1.0  # in which an arm in Python starts, for each launch
HOST_INTERPRETER_S = 4.0  # without a GPU: input/decode's five arms took 22 s a launch on 2 cores
STEPS_ARM_S = 8.0  # of an arm of whole steps: its framework loads, and models train for its check
JOB_ARM_S = 21.0  # of JOB's, an estimate: two are compiled, each window begins a training anew

Row = tuple[str, str, str]  # technique, case, arm


@dataclass(frozen=True)
class Choice:
    """The rows to measure, the cases that there is no time for, and when there would be."""

    rows: tuple[Row, ...]
    left_out: tuple[str, ...]
    all_s: float

    def told(self, share: float, verbose: bool) -> str:
        """How many cases have no time, and the `--quick` of which this share has it for all; asked
        to be verbose, their names."""
        cases = counted(len(self.left_out), "case")
        said = f"{cases} left out for time: --quick {math.ceil(self.all_s / share)}s has all"
        return f"{said}: {', '.join(self.left_out)}" if verbose else f"{said}; --verbose names them"


def choose(
    techniques: Sequence[TechniqueInfo],
    context: Context,
    budget_s: float,
    matches: Callable[..., bool],
    launches: int | None = None,
    arm_time_s: float | None = None,
) -> Choice:
    """Of the quick cases that match: first those that the machine is judged by, then the job's and
    other whole training steps, then one of each technique, then the others, of equals the shorter
    first; as many as fit into the time. Without a GPU how many images the machine can feed goes
    before what it is worth in parts.

    What needs a GPU or a package takes no time where there is none: its rows say why.
    """
    more_s = (arm_time_s or ARM_TIME_S) - ARM_TIME_S
    starts_s = INTERPRETER_S if context.gpu else HOST_INTERPRETER_S
    ranked = sorted(_ranked(techniques, context, matches, launches or LAUNCHES, more_s, starts_s))
    rows: list[Row] = [
        (info.id, "", "-")
        for info in techniques
        if info.unavailable and not info.cases and matches(info.id)
    ]
    left_out = []
    spent_s = all_s = 0.0
    for _, seconds, technique, case, arms in ranked:
        all_s += seconds
        if spent_s + seconds > budget_s:
            left_out.append(_name(technique, case))
            continue
        spent_s += seconds
        rows += [(technique, case, arm) for arm in arms]
    return Choice(tuple(rows), tuple(left_out), all_s)


def _ranked(
    techniques: Sequence[TechniqueInfo],
    context: Context,
    matches: Callable[..., bool],
    launches: int,
    more_s: float,
    starts_s: float,
) -> Iterable[tuple[int, float, str, str, tuple[str, ...]]]:
    """Rank, seconds, technique, case and arms; `more_s` is what an arm takes beyond the usual,
    `starts_s` what its interpreter takes."""
    for info in techniques:
        judged = info.ceiling  # the integrity checks are ceilings, too
        first = info.id == (JOB if context.gpu else FEEDING)
        steps = info.whole_steps and context.gpu is not None
        quick = sorted(
            (_seconds(info, case, len(arms), launches, more_s, starts_s), case.id, arms)
            for case in info.cases
            if case.quick and (arms := arms_of(info, case, matches))
        )
        here = not info.not_here(context)
        for number, (seconds, case_id, arms) in enumerate(quick):
            rank = 0 if judged else 1 if first else 2 if steps else min(number, 1) + 3
            yield (rank, here * seconds, info.id, case_id, arms)


def arms_of(info: TechniqueInfo, case: CaseInfo, matches: Callable[..., bool]) -> tuple[str, ...]:
    name = _name(info.id, case.id)
    return tuple(arm for arm in info.arms if matches(info.id, name, f"{name}/{arm}"))


def _seconds(
    info: TechniqueInfo, case: CaseInfo, arms: int, launches: int, more_s: float, starts_s: float
) -> float:
    """Of all launches of a case, of which gpulift-bench takes one alone where each is long."""
    once = info.whole_steps or case.regime == "sustained"
    usual_s = JOB_ARM_S if info.id == JOB else STEPS_ARM_S if info.whole_steps else ARM_S
    arm_s = usual_s + more_s
    in_python = min(arms, len(info.python))
    return (1 if once else launches) * (arms * arm_s + in_python * starts_s)


def _name(technique: str, case: str) -> str:
    return "/".join(part for part in (technique, case) if part)
