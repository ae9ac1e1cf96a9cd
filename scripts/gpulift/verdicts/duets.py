"""Two builds of one technique that took turns on one card: the duet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from gpulift.ground.errors import OK, GpuliftError
from gpulift.records.read import Run
from gpulift.verdicts import stats
from gpulift.verdicts.cases import group_cases
from gpulift.verdicts.matching import names_of
from gpulift.verdicts.row import PASSED, Row, Table

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


def table(runs: Sequence[Run]) -> Table:
    """What was measured; `gate` judges it."""
    rows = tuple(_row(one) for one in duet_rows(runs))
    if not rows:
        raise GpuliftError("there are no duets in these records: name HEAD, to compare two runs")
    return Table("gpulift compare", f"duets of {', '.join(run.name for run in runs)}", rows, OK)


def _row(one: DuetRow) -> Row:
    name, pair = names_of(one.technique, one.case_id, one.arm)[-1], one.pair
    why = "" if pair.log_sd is None else f"launches differ by {100 * pair.log_sd:.3f} % (SD)"
    return Row(
        "head/base",
        name,
        "measured",
        PASSED,
        one.technique,
        pair.ratio,
        reason=why,
        data=lambda: asdict(one),
    )
