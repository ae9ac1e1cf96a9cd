"""Verdicts: a check passes, fails, is inconclusive or was skipped, and says why.

A verdict is a pure function of records, method version and reference. What is compared with a
limit is the whole interval, so that noise neither passes nor fails a machine, and an interval from
windows of one launch never decides. It is wide enough for all looks that `rounds` may take.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import scipy

from gpulift.analysis.machine.computed_peaks import computed_peak, expected_share
from gpulift.analysis.machine.measured import measured_checks
from gpulift.analysis.machine.results import (
    FAIL,
    INCONCLUSIVE,
    PASS,
    SKIPPED,
    VERDICTS,
    Check,
    CheckResult,
    judged,
)
from gpulift.analysis.machine.unmeasured import (
    left_out,
    not_measured,
    of_problem,
    problem_of,
)
from gpulift.analysis.reference import Measured, Peak, Reference
from gpulift.analysis.summary import Problem, Summary
from gpulift.engine import quick
from gpulift.ground import text
from gpulift.ground.estimate import Estimate
from gpulift.records.model import Context

LOOKS = (quick.LAUNCHES, 2 * quick.LAUNCHES, 4 * quick.LAUNCHES)  # launches in all at each look
WRONG = 0.05 / len(LOOKS)  # how often the interval of a look may miss: a share for each

IMPLAUSIBLE = 1.05  # times a datasheet's or a computed peak
SAME_POWER_LIMIT_W = 1.0  # limits are set in watts
OPTIMISED = ("", "Release", "RelWithDebInfo")
INTEGRITY_CHECK = "health/integrity"
REMEDIES = (
    ("roof/gemm/", "look at the health checks of clocks, power and temperature"),
    ("roof/host_link/", "look at slot, PCIe width and the NUMA node of the process"),
    ("roof/gpu_link/host/", "look at slot and PCIe width of both cards, and at the NUMA nodes"),
    ("roof/gpu_link/", "look at the health check of NVLinks, then nvidia-smi topo -m"),
    ("roof/device_memory/", "look at the health checks of memory errors and other processes"),
)
BUILD_REFERENCE = "./gpulift reference build RESULTS makes entries from records"
REFRESH = "refresh the reference: ./gpulift reference build RESULTS, with this run among them"
REMEDY = "measure again with nothing else running; then look at the health checks"
ONE_LAUNCH_REMEDY = (
    "measure again with several launches, as ./gpulift qualify does; where it did, look at what"
    " kept the others from being measured"
)
HOST_REMEDY = (
    "the host's pace is in it: look at its other load, clocks and, if virtual, its neighbours; "
    "then at the health checks"
)


def for_all_looks(estimate: Estimate) -> Estimate:
    """The same with an interval of which, over all looks, no more than 5 % miss."""
    if estimate.launches < 2 or estimate.low is None or estimate.high is None:
        return estimate
    freedom = estimate.launches - 1
    usual, wanted = (
        float(scipy.special.stdtrit(freedom, 1 - wrong / 2))
        for wrong in (1 - estimate.confidence, WRONG)
    )
    factor = math.exp(math.log(estimate.high / estimate.value) * wanted / usual)
    low, high = estimate.value / factor, estimate.value * factor
    return replace(estimate, low=low, high=high, confidence=1 - WRONG)


def judge(
    estimate: Estimate, value: float, tolerance: float, higher_is_better: bool = True
) -> CheckResult:
    """Where the interval lies against value * (1 -+ tolerance); `tolerance` is a fraction."""
    limit = value * (1 - tolerance if higher_is_better else 1 + tolerance)
    if estimate.low is None or estimate.high is None:
        return judged(INCONCLUSIVE, _no_interval(estimate), limit=limit)
    if estimate.one_launch:
        why = (
            "one launch: its interval does not hold the variation from launch to launch, so that no"
            " smallest effect is known"
        )
        return judged(INCONCLUSIVE, why, limit=limit)
    effect = _smallest_effect(estimate, limit / value, higher_is_better)
    worst, best = (estimate.low, estimate.high)
    if not higher_is_better:
        worst, best = -estimate.high, -estimate.low
    signed = limit if higher_is_better else -limit
    found = judged(PASS, limit=limit, smallest_effect=effect)
    if worst >= signed:
        return found
    if best < signed:
        side = "below" if higher_is_better else "above"
        return replace(found, verdict=FAIL, reason=f"the whole interval is {side} the limit")
    return replace(found, verdict=INCONCLUSIVE, reason="the interval holds the limit")


def judge_run(
    summary: Summary,
    reference: Reference | None,
    health: Sequence[CheckResult] = (),
    filter: str = "",
) -> tuple[CheckResult, ...]:
    """Every check of a run, of the reference and of the card's health, each with its verdict.

    `filter` is what the user limited the run to. What a filter or a quick run leaves out of the
    reference is one row.
    """
    checks = [
        replace(check, estimate=for_all_looks(check.estimate)) for check in measured_checks(summary)
    ]
    known: Mapping[str, Measured] = reference.measured if reference else {}
    results = [_judge_check(check, known.get(check.id), reference) for check in checks]
    done = {check.id for check in checks}
    explained: set[Problem] = set()
    count = 0
    for entry in (entry for id, entry in sorted(known.items()) if id not in done):
        problem = problem_of(entry.check, summary)
        if problem:
            explained.add(problem)
        elif filter or not summary.run.full:
            count += 1
            continue
        results.append(not_measured(entry, problem, summary))
    if count:
        results.append(left_out(count, filter))
    if any(result.id == INTEGRITY_CHECK for result in health):
        repeats = {record.technique for record in summary.run.records if record.judges_integrity}
        explained |= {p for p in summary.problems if p.technique in repeats and not p.arm}
    rest = [problem for problem in summary.problems if problem not in explained]
    return (*results, *(of_problem(problem, summary) for problem in rest), *health)


def coverage(results: Sequence[CheckResult]) -> str:
    """`42 pass, 1 fail, 2 inconclusive, 13 skipped`."""
    verdicts = [result.verdict for result in results]
    return ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in VERDICTS)


def decided_by_launches(result: CheckResult) -> bool:
    """Whether it is open and more launches may decide it."""
    entry = result.reference
    alike = not (isinstance(entry, Measured) and result.check and _misfits(result.check, entry))
    return result.verdict == INCONCLUSIVE and result.check is not None and alike


def basis(summary: Summary) -> str:
    """What judges the roofs of this model, as one line for the report."""
    measured = summary.reference.measured if summary.reference else {}
    on_gpu = any(record.context.gpu for record in summary.run.records)
    if not measured and on_gpu:
        return "judged by computed peaks: no reference for this model"
    if not measured:
        return "not judged: no reference values for this processor"
    if not on_gpu:
        return "judged by what was measured with this processor before"
    cards = sorted({entry.cards for entry in measured.values()})
    count = str(cards[0]) if len(cards) == 1 else f"{cards[0]} to {cards[-1]}"
    noun = "card" if cards == [1] else "cards"
    return f"judged by what {count} {noun} of this model reached"


def _no_interval(estimate: Estimate) -> str:
    if estimate.one_launch:
        return "one launch: too few windows even for its own interval; no smallest effect is known"
    return "no interval: too little was measured; no smallest effect is known"


def _smallest_effect(estimate: Estimate, at_limit: float, higher_is_better: bool) -> float | None:
    """With an interval as wide as this one, a card this fraction off the reference would fail."""
    if estimate.low is None or estimate.high is None:
        return None
    if higher_is_better:
        return 1 - at_limit * estimate.value / estimate.high
    return at_limit * estimate.value / estimate.low - 1


@dataclass(frozen=True)
class _Bound:
    """What no card of the model exceeds: a value in the check's unit, and where it is from."""

    value: float | None = None
    kind: str = ""
    entry: Peak | None = None


def _judge_check(check: Check, entry: Measured | None, reference: Reference | None) -> CheckResult:
    peak = _peak(check, check.case.first.context, reference)
    if peak.value and check.estimate.value > IMPLAUSIBLE * peak.value:
        share = check.estimate.value / peak.value
        reason = f"implausible: {100 * share:.0f} % of the {peak.kind}"
        remedy = "do not use this figure: report it with its record"
        return _result(check, judged(FAIL, reason, remedy, limit=IMPLAUSIBLE * peak.value), peak)
    other_host = _other_host(check, entry) if entry else ""
    if entry is not None and not other_host:
        return _judge_by_entry(check, entry)
    lacks = "no reference value" if reference and reference.measured else ""
    return _judge_by_peak(check, peak, other_host or lacks or "no reference for it")


def _judge_by_entry(check: Check, entry: Measured) -> CheckResult:
    verdict = judge(check.estimate, entry.value, entry.tolerance, check.higher_is_better)
    verdict = replace(verdict, remedy=_remedy(check, verdict))
    misfits = _misfits(check, entry)
    better = _far_better(check, entry)
    if better:
        verdict = replace(verdict, reason=better, remedy=REFRESH)
    if not entry.judges:
        reason = f"sound machines differ by more than {100 * entry.tolerance:.0f} %"
        verdict = judged(SKIPPED, reason)
    elif misfits:
        reason = f"other conditions: {'; '.join(misfits)}"
        if verdict.smallest_effect is None:
            reason += f"; {verdict.reason}"
        remedy = "measure under the conditions of the reference"
        verdict = replace(verdict, verdict=INCONCLUSIVE, reason=reason, remedy=remedy)
    return replace(
        _result(check, verdict, _Bound(entry.value, "measured")),
        tolerance=entry.tolerance if entry.judges else None,
        cards=entry.cards if check.case.first.context.gpu else 0,
        launches=entry.launches,
        reference=entry,
    )


def _far_better(check: Check, entry: Measured) -> str:
    """Told where the whole interval is as far above the reference as the limit is below it."""
    over = 1 + entry.tolerance if check.higher_is_better else 1 - entry.tolerance
    if judge(check.estimate, entry.value * over, 0.0, check.higher_is_better).verdict != PASS:
        return ""
    off = abs(check.estimate.value / entry.value - 1)
    return f"{text.percent(off)} better than the reference"


def _judge_by_peak(check: Check, peak: _Bound, lacks: str) -> CheckResult:
    share = expected_share(check.roof, check.case.first.regime) if check.roof else None
    if peak.value is None or share is None:
        if check.roof:
            lacks += ", and no peak can be computed"
        return _result(check, judged(SKIPPED, lacks, BUILD_REFERENCE), _Bound())
    verdict = judge_share(check.estimate, peak.value, share, peak.kind)
    return _result(check, replace(verdict, remedy=_remedy(check, verdict)), peak)


def judge_share(estimate: Estimate, peak: float, share: float, kind: str) -> CheckResult:
    """Passes from a share of the peak on and fails below half of it."""
    upper = judge(estimate, peak, 1 - share)
    lower = judge(estimate, peak, 1 - share / 2)
    effect = lower.smallest_effect
    expected = f"{100 * share:.0f} % of the {kind}"
    if upper.verdict == PASS:
        return replace(upper, reason=f"at least {expected}", smallest_effect=effect)
    if lower.verdict == FAIL:
        reason = f"below half of the {expected} that is expected"
        return replace(lower, reason=reason)
    if effect is None:
        return upper
    reason = f"not surely {expected}, nor below half of it"
    return judged(INCONCLUSIVE, reason, limit=upper.limit, smallest_effect=effect)


def _peak(check: Check, context: Context, reference: Reference | None) -> _Bound:
    """The computed peak, or the datasheet's where the driver or our table says too little."""
    if not check.roof:
        return _Bound()
    computed = computed_peak(check.roof, context.gpu) if context.gpu else None
    if computed is not None:
        return _Bound(computed, "computed peak")
    entry = reference.peaks.get(check.roof) if reference else None
    return _Bound(entry.value if entry else None, "datasheet's peak", entry)


def _misfits(check: Check, entry: Measured) -> list[str]:
    """Conditions under which a comparison would judge the setting rather than the card."""
    record = check.case.first
    context, asked = record.context, entry.conditions
    limit = context.gpu.power_limit_w if context.gpu else None
    misfits = []
    if check.unit != entry.unit:
        misfits.append(f"this is in {check.unit}, the reference in {entry.unit}")
    if record.method != asked.method:
        misfits.append(f"method {record.method}, the reference has {asked.method}")
    if _major(context.cuda_runtime) != _major(asked.cuda_runtime):
        misfits.append(f"CUDA {context.cuda_runtime}, the reference has {asked.cuda_runtime}")
    if limit and asked.power_limit_w and abs(limit - asked.power_limit_w) > SAME_POWER_LIMIT_W:
        misfits.append(f"power limit {limit:.0f} W, the reference has {asked.power_limit_w:.0f} W")
    if context.build.type not in OPTIMISED:
        misfits.append(f"a {context.build.type} build")
    if context.build.foreign_flags:
        misfits.append(f"foreign flags ({context.build.foreign_flags})")
    return misfits


def _other_host(check: Check, entry: Measured) -> str:
    """Why the entry cannot judge a figure that the host's pace is in: it is of another host."""
    arm = check.case.first.arm(check.arm)
    host, known = check.case.first.context.host.name, entry.conditions.host
    if not (arm and arm.may_wait_for_host and known) or host in known.split("; "):
        return ""
    return f"no reference for this host: it is {host}, the reference's {known}"


def _major(version: str) -> str:
    match = re.match(r"\d+", version)
    return match.group() if match else ""


def _result(check: Check, verdict: CheckResult, bound: _Bound) -> CheckResult:
    return replace(
        verdict,
        id=check.id,
        estimate=check.estimate,
        unit=check.unit,
        fraction=check.estimate.value / bound.value if bound.value else None,
        kind=bound.kind,
        against=bound.value,
        reference=bound.entry,
        check=check,
    )


def _remedy(check: Check, verdict: CheckResult) -> str:
    """What to do about a check that did not pass."""
    if verdict.verdict == PASS:
        return ""
    if check.estimate.one_launch:
        return ONE_LAUNCH_REMEDY
    arm = check.case.first.arm(check.arm)
    usual = HOST_REMEDY if arm and arm.may_wait_for_host else REMEDY
    remedy = next((told for prefix, told in REMEDIES if check.id.startswith(prefix)), usual)
    again = verdict.verdict == INCONCLUSIVE and remedy != REMEDY
    return f"measure again with nothing else running; {remedy}" if again else remedy
