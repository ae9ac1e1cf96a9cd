"""One row for each arm of each case, over its launches: what a spreadsheet begins with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpulift.analysis import arms
from gpulift.analysis.facts import facts
from gpulift.analysis.summary import work_of
from gpulift.exchange.rows import Scalar, known_errors
from gpulift.ground.estimate import Estimate
from gpulift.records.model import KINDS, Arm, Cost, Record
from gpulift.records.read import Run
from gpulift.verdicts import stats
from gpulift.verdicts.cases import Case, group_cases

COLUMNS = (
    *("gpu", "technique", "case", "arm", "baseline", "speedup", "low", "high"),
    *("time_s", "rate", "unit", "memory_bytes", "launches", "regime"),
    *("outcome", "reason", "errata", "kind", "run", "record"),
)


def rows(runs: Sequence[Run]) -> Iterator[tuple[Case, dict[str, Scalar]]]:
    """All rows with their cases, run by run. `low` and `high` are of the speedup, `record` is the
    first launch; what was not measured has its outcome and reason alone."""
    for run in runs:
        for kind in KINDS:
            for case in group_cases(run.records, kind):
                for arm in dict.fromkeys(arm.name for one in case.records for arm in one.arms):
                    yield case, _shared(run, case) | _of_arm(case, arm)
                if not any(one.arms for one in case.records):
                    yield case, _shared(run, case) | _told(case.first, case.first)


def _shared(run: Run, case: Case) -> dict[str, Scalar]:
    first = case.first
    return {
        "gpu": first.context.slug,
        "technique": case.technique,
        "case": case.case_id,
        "regime": first.regime,
        "errata": known_errors(first),
        "kind": first.kind,
        "run": run.folder.name,
    }


def _of_arm(case: Case, arm: str) -> dict[str, Scalar]:
    time_s = case.times_s.get(arm)
    if time_s is None:
        return {"arm": arm, **_unmeasured(case, arm)}
    known = facts(case, arm)
    rate, unit = _rate(known.cost, time_s)
    ids = case.record_ids(arm)
    return {
        **_against_baseline(case, arm),
        "arm": arm,
        "time_s": time_s.value,
        "rate": rate,
        "unit": unit,
        "memory_bytes": known.memory_bytes,
        "launches": len(ids),
        "outcome": "ok",
        "record": ids[0],
    }


def _against_baseline(case: Case, arm: str) -> dict[str, Scalar]:
    baseline = arms.baseline_of(case.first)
    if baseline is None or baseline.name == arm or arms.is_ceiling(case.first):
        return {}
    pair = stats.pair_ratio(case.measured, arm, baseline.name)
    if pair is None:
        return {}
    ratio = pair.speedup
    return {
        "baseline": baseline.name,
        "speedup": ratio.value,
        "low": ratio.low,
        "high": ratio.high,
    }


def _rate(cost: Cost | None, time_s: Estimate) -> tuple[float | None, str]:
    """Of the items that the cost names, as images, or else of the work that its roof counts."""
    work, unit = work_of(cost)
    if cost and cost.item and cost.items > 0:
        work, unit = cost.items, f"{cost.item}s/s"
    return (stats.rate(time_s, work).value, unit) if work > 0 else (None, "")


def _unmeasured(case: Case, arm: str) -> dict[str, Scalar]:
    both = ((record, held) for record in case.records if (held := record.arm(arm)))
    record, held = next(both)
    return _told(record, held if record.outcome == "ok" else record)


def _told(record: Record, why: Record | Arm) -> dict[str, Scalar]:
    return {"outcome": why.outcome, "reason": why.reason, "record": record.citation}
