"""`gpulift show ID --again`: measures a record's case again here; is it as predicted?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from gpulift.analysis import arms, prediction
from gpulift.commands import citing
from gpulift.commands.shared import print_json
from gpulift.commands.verified import Verification, as_dict, table
from gpulift.engine import machine, measuring
from gpulift.engine.again import axes_of, command_again, filter_of
from gpulift.engine.machine import TechniqueInfo
from gpulift.ground import errors
from gpulift.ground.entry import say
from gpulift.ground.errors import FAILED, NOT_COMPARABLE, NOTHING_RAN, GpuliftError
from gpulift.ground.text import visible
from gpulift.records.model import Context, Record
from gpulift.records.read import read_results
from gpulift.verdicts.comparability import differences
from gpulift.verdicts.table import FORMS

LEAST_LAUNCHES = 3
NONE = "none"
BENCH = "bench/"  # what `bench` measured


def measured_again(
    record: Record, launches: int | None, gpu: int | None, out: Path | None, as_json: bool
) -> int:
    """Shows whether the new launches fall where the old ones predict; the exit code."""
    then = launches_of(record)
    bench = machine.find_bench()
    context = machine.describe_asked(bench, gpu)
    count = max(LEAST_LAUNCHES, len(then)) if launches is None else launches
    options = options_again(record, count, gpu)
    measuring.require_known(options)
    require_same_work(record, context, measuring.known(options))
    measured = measuring.run(options, machine.own_results(), out, context, say)
    if measured.exit_code not in measuring.FINISHED:
        return measured.exit_code
    found = held_against(record, then, new_launches(record, measured.folder), measured.folder)
    if as_json:
        print_json(as_dict(found))
    else:
        typer.echo(FORMS["lines"](table(found)))
    return found.exit_code


def launches_of(record: Record) -> tuple[Record, ...]:
    """All launches of its case in its run that share its conditions; two or more.

    Raises GpuliftError: usage, where it holds nothing that can be measured again; inconclusive,
    where there is only one launch.
    """
    if record.kind != "technique" or "plant" in record.context.options:
        what = (
            "it is slowed down on purpose" if record.kind == "technique" else "it is no plain run"
        )
        raise GpuliftError(
            f"{record.citation} cannot be measured again: {what} (kind {record.kind}); see"
            f" ./gpulift show {record.citation}"
        )
    if record.outcome != "ok":
        because = f": {record.reason}" if record.reason else ""
        what = f"holds no figure to measure again: it is {record.outcome}{because}"
        raise GpuliftError(visible(f"{record.citation} {what}"))
    then = citing.launches_of(record)
    if not prediction.can_predict(then):
        raise GpuliftError(
            f"inconclusive: {record.citation} is of a run with one launch of this case, which"
            " predicts no interval; nothing was measured",
            errors.INCONCLUSIVE,
        )
    return then


def require_same_work(record: Record, context: Context, catalogue: Sequence[TechniqueInfo]) -> None:
    """Refuses what cannot be the same measurement here.

    Raises GpuliftError: not comparable, naming what differs; nothing ran, with the reason, where
    this machine or build cannot run the technique at all.
    """
    info = next((one for one in catalogue if one.id == record.technique), None)
    if info is None:
        raise _not_comparable(
            [f"technique {record.technique} (not in this build)"], _instead(record)
        )
    gone = _of_another_case(record, info)
    if gone:
        raise _not_comparable(
            [*_of_another_machine(record, context, info), *gone], _instead(record)
        )
    told = info.told_not_here(context)
    if told:
        raise GpuliftError(f"{record.technique} cannot run here: {told}", NOTHING_RAN)
    found = _of_another_machine(record, context, info)
    if found:
        raise _not_comparable(found)


def _instead(record: Record) -> str:
    """What measures a case again that this build does not have."""
    if record.technique.startswith(BENCH):
        return f"; {command_again(record)} measures it again"
    commit = record.context.build.commit
    at = f"git checkout {commit} has it as it was, " if commit else ""
    return f"; {at}./gpulift list {record.technique} tells today's cases"


def options_again(record: Record, launches: int, gpu: int | None) -> measuring.Options:
    """What the record's run was told, for this case alone."""
    told = record.context.options
    return measuring.Options(
        filter=filter_of(record),
        quick=told.get("quick") is True,
        launches=launches,
        arm_time=_number(told, "arm_time_s"),
        precision=_number(told, "precision"),
        seed=_whole(told, "seed"),
        gpu=gpu,
        axes=axes_of(record),
    )


def new_launches(record: Record, folder: Path) -> tuple[Record, ...]:
    """The launches of the case in the new run.

    Raises GpuliftError: nothing ran, where all were skipped; failed, where none was measured.
    """
    now = tuple(
        one
        for run in read_results([folder])
        for one in run.records
        if one.subject == record.subject
    )
    if any(one.outcome == "ok" for one in now):
        return now
    reason = next((one.reason for one in now if one.reason), "no launch of it was recorded")
    if now and all(one.outcome == "skipped" for one in now):
        raise GpuliftError(visible(f"{record.technique} was skipped here: {reason}"), NOTHING_RAN)
    raise GpuliftError(visible(f"{record.technique} failed here: {reason}"), FAILED)


def held_against(
    record: Record, then: Sequence[Record], now: Sequence[Record], folder: Path
) -> Verification:
    """Each arm of the old launches against the new ones; refuses (not comparable) other work."""
    measured = [one for one in now if one.outcome == "ok"]
    other = _of_other_work(record, measured[0])
    if other:
        raise _not_comparable(other)
    return Verification(
        record=record,
        then=tuple(then),
        now=tuple(now),
        answers=prediction.answers(then, now),
        differs=tuple(differences(record, measured[0])),
        folder=folder,
    )


def _number(told: Mapping[str, Any], key: str) -> float | None:
    """What a record says of an option may be anything."""
    value = told.get(key)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _whole(told: Mapping[str, Any], key: str) -> int | None:
    value = _number(told, key)
    return value if isinstance(value, int) else None


def _of_another_machine(record: Record, context: Context, info: TechniqueInfo) -> list[str]:
    """The model of the GPU, or of the processor where the work was the host's."""
    theirs, ours = record.context.gpu, context.gpu
    facts = []
    if info.gpus or info.python:
        facts.append(("gpu.name", theirs.name if theirs else NONE, ours.name if ours else NONE))
    if not info.gpus and not (info.python and theirs):
        facts.append(("host.cpu", record.context.host.cpu, context.host.cpu))
        then, now = (one.host.facts.get("cpu_id") for one in (record.context, context))
        if then and now:  # until schema 1.5 records did not tell
            facts.append(("host.cpu_id", str(then), str(now)))
    return [_difference(*one) for one in facts if one[1] != one[2]]


def _of_another_case(record: Record, info: TechniqueInfo) -> list[str]:
    case = next((one for one in info.cases if one.id == record.case_id), None)
    if case is None:
        return [f"case {record.case_id} (not in this build)"]
    found = [] if case.regime == record.regime else [("regime", record.regime, case.regime)]
    measured = [arm.name for arm in record.arms if arm.outcome == "ok"]
    missing = [name for name in measured if name not in info.arms]
    return [
        *(_difference(*one) for one in found),
        *(f"arm {name} (not in this build)" for name in missing),
    ]


def _of_other_work(record: Record, new: Record) -> list[str]:
    """A ceiling may choose its size; in every other case a step's work is part of the figure."""
    if arms.is_ceiling(record):
        return []
    found = []
    for one in record.arms:
        same = new.arm(one.name)
        if one.cost and same and same.cost and one.cost != same.cost:
            found.append(_difference(f"work of arm {one.name}", one.cost, same.cost))
    return found


def _difference(fact: str, then: object, now: object) -> str:
    return f"{fact} ({then} then, {now} here)"


def _not_comparable(found: Sequence[str], instead: str = "") -> GpuliftError:
    return GpuliftError(visible(f"not comparable: {', '.join(found)}{instead}"), NOT_COMPARABLE)
