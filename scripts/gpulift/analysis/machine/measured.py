"""What a run measured that can be judged: rates of roofs and fixed products, costs, step times."""

from __future__ import annotations

from gpulift.analysis.machine.results import FIXED, Check
from gpulift.analysis.summary import Roof, Summary, is_fixed, rates_of
from gpulift.verdicts import stats
from gpulift.verdicts.cases import Case


def measured_checks(summary: Summary) -> tuple[Check, ...]:
    """Everything that can be judged: roofs, fixed products, unit costs, and step times of each
    arm."""
    roofs = [_of_rate("roof/", roof) for roof in summary.roofs]
    costs = [
        Check(
            id=f"cost/{row.case.technique}/{row.case.case_id}/{row.arm}",
            unit="s",
            estimate=row.time_s,
            case=row.case,
            arm=row.arm,
            work=_items(row.case, row.arm),
        )
        for row in summary.unit_costs
    ]
    return (*roofs, *_fixed_products(summary), *costs, *_step_times(summary))


def _fixed_products(summary: Summary) -> list[Check]:
    """Rates of a ceiling's products whose shape and algorithm no run searches: no roof, and alike
    on cards of one model."""
    return [
        _of_rate(FIXED, rate) for case in summary.cases if is_fixed(case) for rate in rates_of(case)
    ]


def _of_rate(kind: str, rate: Roof) -> Check:
    """Of a product, too, the roof is named: a share of its computed peak is what it reaches."""
    return Check(
        id=f"{kind}{rate.name}/{rate.regime}",
        unit=rate.unit,
        estimate=rate.rate,
        case=rate.case,
        arm=rate.arm,
        work=_work(rate.case, rate.arm),
        roof=rate.name,
    )


def _work(case: Case, arm: str) -> float:
    measured = case.first.arm(arm)
    return stats.work_for_roof(measured.cost) if measured and measured.cost else 0.0


def _items(case: Case, arm: str) -> float:
    measured = case.first.arm(arm)
    return measured.cost.items if measured and measured.cost else 0.0


def _step_times(summary: Summary) -> list[Check]:
    """The speedups tell techniques apart; only the times themselves tell a slow card."""
    checks = []
    for case in summary.cases:
        if case.first.ceiling or case.first.judges_integrity:
            continue
        for arm in case.first.arms:
            time = case.times_s.get(arm.name)
            if time:
                id = f"time/{case.technique}/{case.case_id}/{arm.name}"
                checks.append(Check(id, "s", time, case, arm.name, 1.0))
    return checks
