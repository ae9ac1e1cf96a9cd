"""Two further launches of whole training steps that the default number leaves wide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gpulift.engine import machine, measuring
from gpulift.records.model import Record
from gpulift.records.read import read_run
from gpulift.verdicts import stats
from gpulift.verdicts.cases import TECHNIQUE, Case, group_cases

WIDE = 0.02  # of an interval, from end to end
LAUNCHES = 5


def measure(folder: Path, options: measuring.Options, say: measuring.Say) -> int | None:
    """The exit code of the further launches; None where none are needed."""
    cases = wide_cases(read_run(folder).records)
    if not cases:
        return None
    names = ", ".join(f"{case.technique}/{case.case_id}" for case in cases)
    say(f"intervals wider than {100 * WIDE:g} %: measured on, {LAUNCHES} launches in all: {names}")
    rows = tuple(
        (case.technique, case.case_id, arm.name)
        for case in cases
        for arm in case.first.arms
        if arm.outcome == "ok"
    )
    asked = replace(options, rows=rows, launches=LAUNCHES)
    measuring.write_rows(folder, rows)
    return machine.measure(machine.find_bench(), asked.flags(folder))


def wide_cases(records: Sequence[Record]) -> list[Case]:
    """Of whole steps, where the interval of an arm's speedup is wide."""
    cases = group_cases([one for one in records if one.whole_steps], TECHNIQUE)
    return [case for case in cases if 1 < len(case.measured) < LAUNCHES and _is_wide(case)]


def _is_wide(case: Case) -> bool:
    baseline = next(arm.name for arm in case.first.arms if arm.role == "baseline")
    pairs = (stats.pair_ratio(case.measured, name, baseline) for name in case.arms)
    halves = (pair.speedup.half_width for pair in pairs if pair)
    return any(half is not None and 2 * half > WIDE for half in halves)
