"""One row for each arm of each case, over its launches: what a spreadsheet begins with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpulift.analysis import arms
from gpulift.analysis.facts import facts
from gpulift.analysis.summary import work, work_of
from gpulift.exchange.rows import Scalar, choice, gone, known_errors
from gpulift.records.model import KINDS, Arm, Cost, Record
from gpulift.records.read import Run
from gpulift.verdicts import stats
from gpulift.verdicts.cases import Case, group_cases

COLUMNS = (
    *("gpu", "technique", "case", "arm", "baseline", "speedup", "low", "high"),
    *("time_s", "rate", "unit", "memory_bytes", "launches", "regime"),
    *("outcome", "reason", "errata", "text", "gone", "kind", "run", "record"),
)


def rows(runs: Sequence[Run]) -> Iterator[tuple[Case, dict[str, Scalar]]]:
    """All rows with their cases, run by run. `low` and `high` are of the speedup, `record` is the
    first launch; what was not measured has its outcome and reason alone."""
    for run in runs:
        for kind in KINDS:
            for case in group_cases(run.records, kind):
                for arm in dict.fromkeys(arm.name for one in case.records for arm in one.arms):
                    marked = {"gone": gone(case.first, arm)}
                    yield case, _shared(run, case) | marked | _of_arm(case, arm)
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
        "text": choice().today.text(first),
        "kind": first.kind,
        "run": run.folder.name,
    }


def _of_arm(case: Case, arm: str) -> dict[str, Scalar]:
    time_s = case.times_s.get(arm)
    if time_s is None:
        return {"arm": arm, **_unmeasured(case, arm)}
    known = facts(case, arm)
    rate, unit = _rate(known.cost, case.arms[arm])
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


def _rate(cost: Cost | None, launches: Sequence[Arm]) -> tuple[float | None, str]:
    """Of the items that the cost names, as images, or else of the work that its roof counts."""
    counted = cost is not None and cost.item and cost.items > 0
    of, unit = (stats.items, f"{cost.item}s/s") if cost and counted else (work, work_of(cost)[1])
    rate = stats.rate_over(launches, of)
    return (rate.value, unit) if rate else (None, "")


def _unmeasured(case: Case, arm: str) -> dict[str, Scalar]:
    both = ((record, held) for record in case.records if (held := record.arm(arm)))
    record, held = next(both)
    return _told(record, held if record.outcome == "ok" else record)


def _told(record: Record, why: Record | Arm) -> dict[str, Scalar]:
    return {"outcome": why.outcome, "reason": why.reason, "record": record.citation}
