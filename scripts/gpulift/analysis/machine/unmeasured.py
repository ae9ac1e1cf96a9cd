"""Rows for what a run did not measure: by the reference, or by what went wrong in it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpulift.analysis.machine.results import FAIL, SKIPPED, CheckResult
from gpulift.analysis.reference import Measured
from gpulift.analysis.summary import Problem, Summary
from gpulift.engine.again import repeated_by
from gpulift.ground import registers, text
from gpulift.records.model import Record

LEFT_OUT = "reference/left_out"  # the one row of all that the run was not meant to measure


def not_measured(entry: Measured, problem: Problem | None, summary: Summary) -> CheckResult:
    """A row for what the reference has and the run has not, though it was meant to."""
    verdict, remedy = SKIPPED, ""
    reason = "not measured: filtered out, or not in this build"
    if problem:
        verdict = SKIPPED if problem.outcome == "skipped" else FAIL
        reason = f"{problem.outcome} in this run: {problem.reason}"
        remedy = problem.remedy or _remedy_of(problem, summary)
    return CheckResult(
        id=entry.check,
        verdict=verdict,
        reason=reason,
        remedy=remedy,
        unit=entry.unit,
        tolerance=entry.tolerance,
        cards=entry.cards if summary.run.records[0].context.gpu else 0,
        launches=entry.launches,
        kind="measured",
        reference=entry,
    )


def left_out(count: int, filter: str) -> CheckResult:
    """The row for what the reference has and the run was not meant to measure."""
    checks = text.counted(count, "check")
    if filter:
        reason = f"{checks} of the reference not measured: the run was limited to {filter!r}"
        return CheckResult(LEFT_OUT, SKIPPED, reason, kind="measured")
    reason = f"{checks} of the reference not measured: a quick run has only the quick cases"
    remedy = "./gpulift qualify without --quick"
    return CheckResult(
        LEFT_OUT, SKIPPED, f"{reason} that there is time for", remedy, kind="measured"
    )


def problem_of(id: str, summary: Summary) -> Problem | None:
    """What kept this check from being measured, where the run says so."""
    kind, _, rest = id.partition("/")
    if kind == "roof":
        roof, _, regime = rest.rpartition("/")
        regimes = {(r.technique, r.case_id): r.regime for r in summary.run.records}
        return next((p for p in summary.problems if _explains(p, roof, regime, regimes)), None)
    for problem in summary.problems:
        case = f"{problem.technique}/{problem.case_id}/"
        if rest.startswith(case) and problem.arm in ("", rest.removeprefix(case)):
            return problem
    return None


def _explains(
    problem: Problem, roof: str, regime: str, regimes: Mapping[tuple[str, str], str]
) -> bool:
    """Whether it is of the technique that measures the roof, its regime and its arm.

    The arm or the case of the roof `gemm/bf16` is of bf16.
    """
    detail = roof.partition("/")[2]
    if problem.technique != registers.roof(roof).get("ceiling"):
        return False
    if regimes.get((problem.technique, problem.case_id)) != regime:
        return False
    named = re.split(r"[/:]", problem.case_id)
    return problem.arm == detail if problem.arm else detail in named or "dtype" not in named


def of_problem(problem: Problem, summary: Summary) -> CheckResult:
    """A row for what went wrong or was skipped outside of the reference."""
    parts = ("case", problem.technique, problem.case_id, problem.arm)
    return CheckResult(
        id="/".join(part for part in parts if part),
        verdict=SKIPPED if problem.outcome == "skipped" else FAIL,
        reason=f"{problem.outcome} in this run: {problem.reason}",
        remedy=problem.remedy or _remedy_of(problem, summary),
    )


def look_again(record: Record) -> str:
    """The remedy where a record names none: where to read on, and how to measure it again."""
    line = f"read line {record.line} of {record.file.name} among the records"
    return f"{line}; {repeated_by(record)} repeats it"


def _remedy_of(problem: Problem, summary: Summary) -> str:
    """Empty for a skip, which is a result and needs no remedy."""
    if problem.outcome == "skipped":
        return ""
    case = (problem.technique, problem.case_id)
    tried = [r for r in summary.run.records if (r.technique, r.case_id) == case]
    return next(look_again(r) for r in tried if problem.outcome == _outcome(r, problem.arm))


def _outcome(record: Record, name: str) -> str:
    """Of the arm of that name, or with no name of the record."""
    arm = record.arm(name) if name else None
    return arm.outcome if arm else record.outcome
