"""Two builds of one technique that took turns on one card: the duet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpulift.records.read import Run
from gpulift.verdicts import stats
from gpulift.verdicts.cases import group_cases

BASE = "base:"
HEAD = "head:"


@dataclass(frozen=True)
class DuetRow:
    """One arm of one case, head against base; `pair.ratio` is head time / base time."""

    technique: str
    case_id: str
    arm: str
    pair: stats.PairRatio


def duet_rows(runs: Sequence[Run]) -> list[DuetRow]:
    """All duets of the runs, case by case."""
    rows = []
    for run in runs:
        for case in group_cases(run.records, "duet"):
            names = [arm.name for arm in case.first.arms if arm.name.startswith(HEAD)]
            for name in (head.removeprefix(HEAD) for head in names):
                pair = stats.pair_ratio(case.measured, HEAD + name, BASE + name)
                if pair is not None:
                    rows.append(DuetRow(case.technique, case.case_id, name, pair))
    return rows
