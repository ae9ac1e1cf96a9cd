"""What `--quick` measures: the cases that tell most per second, as many as its time allows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gpulift.machine import CaseInfo, TechniqueInfo
from gpulift.qualify import feeding
from gpulift.records.model import Context

DEFAULT = "120s"
NEAR_A_TIME = re.compile(r"[\d.]+[A-Za-z]*")  # `5min` is refused as a time, and is no filter
LAUNCHES = 3
FIRST_SHARE = 2 / 3  # of a qualification's time: the rest is for what is then open
ARM_TIME_S = 0.2  # of gpulift-bench, with --quick
ARM_S = 0.4  # of an arm in a launch, with its check and lead-in: 16 cases of an H100 took 75 s
INTERPRETER_S = 1.0  # in which an arm in Python starts, for each launch

Row = tuple[str, str, str]  # technique, case, arm


@dataclass(frozen=True)
class Choice:
    """The rows to measure, the cases that there is no time for, and when there would be."""

    rows: tuple[Row, ...]
    left_out: tuple[str, ...]
    all_s: float


def with_default(arguments: Iterable[str]) -> list[str]:
    """The command line, in which a `--quick` without a time has the default; what follows `--`, as
    the command of a job does, is left alone."""
    told: list[str] = []
    given = list(arguments)
    end = given.index("--") if "--" in given else len(given)
    for argument in given[:end]:
        if told and told[-1] == "--quick" and not NEAR_A_TIME.fullmatch(argument):
            told.append(DEFAULT)
        told.append(argument)
    told += [DEFAULT] if told and told[-1] == "--quick" else []
    return told + given[end:]


def choose(
    techniques: Sequence[TechniqueInfo],
    context: Context,
    budget_s: float,
    matches: Callable[..., bool],
    launches: int | None = None,
    arm_time_s: float | None = None,
) -> Choice:
    """Of the quick cases that match: first those that the machine is judged by, then one of each
    technique, then the others, of equals the shorter first; as many as fit into the time. Without a
    GPU how many images the machine can feed goes before what it is worth in parts.

    What needs a GPU takes no time where there is none: its rows say why.
    """
    arm_s = ARM_S + (arm_time_s or ARM_TIME_S) - ARM_TIME_S
    ranked = sorted(_ranked(techniques, context, matches, arm_s))
    rows: list[Row] = [
        (info.id, "", "-") for info in techniques if info.unavailable and matches(info.id)
    ]
    left_out = []
    spent_s = all_s = 0.0
    for _, launch_s, technique, case, arms in ranked:
        seconds = (launches or LAUNCHES) * launch_s
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
    arm_s: float,
) -> Iterable[tuple[int, float, str, str, tuple[str, ...]]]:
    asked_first = "" if context.gpu else feeding.TECHNIQUE
    for info in techniques:
        judged = info.ceiling  # the integrity checks are ceilings, too
        quick = sorted(
            (0.0 if info.not_here(context) else _launch_s(info, len(arms), arm_s), case.id, arms)
            for case in info.cases
            if case.quick and (arms := _arms(info, case, matches))
        )
        for number, (launch_s, case_id, arms) in enumerate(quick):
            rank = 0 if judged else 1 if info.id == asked_first else min(number, 1) + 2
            yield (rank, launch_s, info.id, case_id, arms)


def _arms(info: TechniqueInfo, case: CaseInfo, matches: Callable[..., bool]) -> tuple[str, ...]:
    name = _name(info.id, case.id)
    return tuple(arm for arm in info.arms if matches(info.id, name, f"{name}/{arm}"))


def _launch_s(info: TechniqueInfo, arms: int, arm_s: float) -> float:
    in_python = min(arms, len(info.python))
    return arms * arm_s + in_python * INTERPRETER_S


def _name(technique: str, case: str) -> str:
    return "/".join(part for part in (technique, case) if part)
