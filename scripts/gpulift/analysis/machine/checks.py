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
from gpulift.analysis.machine.results import (
    FAIL,
    FIXED,
    INCONCLUSIVE,
    PASS,
    SKIPPED,
    VERDICTS,
    Check,
    CheckResult,
)
from gpulift.analysis.reference import Measured, Peak, Reference
from gpulift.analysis.summary import Problem, Summary, is_fixed, rates_of
from gpulift.engine import quick
from gpulift.engine.again import repeated_by
from gpulift.ground import registers, text
from gpulift.ground.estimate import Estimate
from gpulift.records.model import Context, Record
from gpulift.verdicts import stats
from gpulift.verdicts.cases import Case

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
LEFT_OUT = "reference/left_out"  # the one row of all that the run was not meant to measure
REMEDY = "measure again with nothing else running; then look at the health checks"
ONE_LAUNCH_REMEDY = (
    "measure again with several launches, as ./gpulift qualify does; where it did, look at what"
    " kept the others from being measured"
)
HOST_REMEDY = (
    "the host's pace is in it: look at its other load, clocks and, if virtual, its neighbours; "
    "then at the health checks"
)


@dataclass(frozen=True)
class Verdict:
    """One judgement. `smallest_effect`: the smallest deviation that would have failed for sure."""

    word: str
    limit: float | None = None
    reason: str = ""
    smallest_effect: float | None = None


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
) -> Verdict:
    """Where the interval lies against value * (1 -+ tolerance); `tolerance` is a fraction."""
    limit = value * (1 - tolerance if higher_is_better else 1 + tolerance)
    if estimate.low is None or estimate.high is None:
        return Verdict(INCONCLUSIVE, limit, _no_interval(estimate))
    if estimate.one_launch:
        why = (
            "one launch: its interval does not hold the variation from launch to launch, so that no"
            " smallest effect is known"
        )
        return Verdict(INCONCLUSIVE, limit, why)
    effect = _smallest_effect(estimate, limit / value, higher_is_better)
    worst, best = (estimate.low, estimate.high)
    if not higher_is_better:
        worst, best = -estimate.high, -estimate.low
    signed = limit if higher_is_better else -limit
    if worst >= signed:
        return Verdict(PASS, limit, "", effect)
    if best < signed:
        side = "below" if higher_is_better else "above"
        return Verdict(FAIL, limit, f"the whole interval is {side} the limit", effect)
    return Verdict(INCONCLUSIVE, limit, "the interval holds the limit", effect)


def measured_checks(summary: Summary) -> tuple[Check, ...]:
    """Everything that can be judged: roofs, fixed products, unit costs, and step times of each
    arm."""
    roofs = [
        Check(
            id=f"roof/{roof.name}/{roof.regime}",
            unit=roof.unit,
            estimate=roof.rate,
            case=roof.case,
            arm=roof.arm,
            work=_work(roof.case, roof.arm),
            roof=roof.name,
        )
        for roof in summary.roofs
    ]
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
        Check(
            id=f"{FIXED}{rate.name}/{rate.regime}",
            unit=rate.unit,
            estimate=rate.rate,
            case=rate.case,
            arm=rate.arm,
            work=_work(rate.case, rate.arm),
            roof=rate.name,  # a share of whose computed peak it reaches, too
        )
        for case in summary.cases
        if is_fixed(case)
        for rate in rates_of(case)
    ]


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
    left_out = 0
    for entry in (entry for id, entry in sorted(known.items()) if id not in done):
        problem = _problem_of(entry.check, summary)
        if problem:
            explained.add(problem)
        elif filter or not summary.run.full:
            left_out += 1
            continue
        results.append(_not_measured(entry, problem, summary))
    if left_out:
        results.append(_left_out(left_out, filter))
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
        return _result(check, Verdict(FAIL, IMPLAUSIBLE * peak.value, reason), remedy, peak)
    other_host = _other_host(check, entry) if entry else ""
    if entry is not None and not other_host:
        return _judge_by_entry(check, entry)
    lacks = "no reference value" if reference and reference.measured else ""
    return _judge_by_peak(check, peak, other_host or lacks or "no reference for it")


def _judge_by_entry(check: Check, entry: Measured) -> CheckResult:
    verdict = judge(check.estimate, entry.value, entry.tolerance, check.higher_is_better)
    remedy = _remedy(check, verdict)
    misfits = _misfits(check, entry)
    better = _far_better(check, entry)
    if better:
        verdict, remedy = replace(verdict, reason=better), REFRESH
    if not entry.judges:
        reason = f"sound machines differ by more than {100 * entry.tolerance:.0f} %"
        verdict, remedy = Verdict(SKIPPED, reason=reason), ""
    elif misfits:
        reason = f"other conditions: {'; '.join(misfits)}"
        if verdict.smallest_effect is None:
            reason += f"; {verdict.reason}"
        verdict = replace(verdict, word=INCONCLUSIVE, reason=reason)
        remedy = "measure under the conditions of the reference"
    return replace(
        _result(check, verdict, remedy, _Bound(entry.value, "measured")),
        tolerance=entry.tolerance if entry.judges else None,
        cards=entry.cards if check.case.first.context.gpu else 0,
        launches=entry.launches,
        reference=entry,
    )


def _far_better(check: Check, entry: Measured) -> str:
    """Told where the whole interval is as far above the reference as the limit is below it."""
    over = 1 + entry.tolerance if check.higher_is_better else 1 - entry.tolerance
    if judge(check.estimate, entry.value * over, 0.0, check.higher_is_better).word != PASS:
        return ""
    off = abs(check.estimate.value / entry.value - 1)
    return f"{text.percent(off)} better than the reference"


def _judge_by_peak(check: Check, peak: _Bound, lacks: str) -> CheckResult:
    share = expected_share(check.roof, check.case.first.regime) if check.roof else None
    if peak.value is None or share is None:
        if check.roof:
            lacks += ", and no peak can be computed"
        return _result(check, Verdict(SKIPPED, reason=lacks), BUILD_REFERENCE, _Bound())
    verdict = judge_share(check.estimate, peak.value, share, peak.kind)
    return _result(check, verdict, _remedy(check, verdict), peak)


def judge_share(estimate: Estimate, peak: float, share: float, kind: str) -> Verdict:
    """Passes from a share of the peak on and fails below half of it."""
    upper = judge(estimate, peak, 1 - share)
    lower = judge(estimate, peak, 1 - share / 2)
    effect = lower.smallest_effect
    expected = f"{100 * share:.0f} % of the {kind}"
    if upper.word == PASS:
        return Verdict(PASS, upper.limit, f"at least {expected}", effect)
    if lower.word == FAIL:
        return Verdict(FAIL, lower.limit, f"below half of the {expected} that is expected", effect)
    if effect is None:
        return upper
    return Verdict(
        INCONCLUSIVE, upper.limit, f"not surely {expected}, nor below half of it", effect
    )


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


def _result(check: Check, verdict: Verdict, remedy: str, bound: _Bound) -> CheckResult:
    return CheckResult(
        id=check.id,
        verdict=verdict.word,
        reason=verdict.reason,
        remedy=remedy,
        estimate=check.estimate,
        unit=check.unit,
        limit=verdict.limit,
        fraction=check.estimate.value / bound.value if bound.value else None,
        smallest_effect=verdict.smallest_effect,
        kind=bound.kind,
        against=bound.value,
        reference=bound.entry,
        check=check,
    )


def _remedy(check: Check, verdict: Verdict) -> str:
    """What to do about a check that did not pass."""
    if verdict.word == PASS:
        return ""
    if check.estimate.one_launch:
        return ONE_LAUNCH_REMEDY
    arm = check.case.first.arm(check.arm)
    usual = HOST_REMEDY if arm and arm.may_wait_for_host else REMEDY
    remedy = next((told for prefix, told in REMEDIES if check.id.startswith(prefix)), usual)
    again = verdict.word == INCONCLUSIVE and remedy != REMEDY
    return f"measure again with nothing else running; {remedy}" if again else remedy


def _not_measured(entry: Measured, problem: Problem | None, summary: Summary) -> CheckResult:
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


def _left_out(count: int, filter: str) -> CheckResult:
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


def _problem_of(id: str, summary: Summary) -> Problem | None:
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
