"""Records as Prometheus' gauges."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from gpulift.analysis import arms
from gpulift.analysis.analyse import JudgedRun
from gpulift.analysis.machine import verdict
from gpulift.analysis.machine.results import PASS
from gpulift.ground.estimate import Estimate
from gpulift.ground.gauges import Gauges, Labels
from gpulift.records.model import KINDS, OUTCOMES, Arm
from gpulift.records.read import Run
from gpulift.verdicts import stats
from gpulift.verdicts.cases import Case, group_cases

HELP = {
    "gpulift_run_info": "Where and with what the records of a run were measured; always 1.",
    "gpulift_run_started_timestamp_seconds": "When the first case of the run began.",
    "gpulift_records": "Records of the run by outcome.",
    "gpulift_launches": "Launches (processes) behind the step time.",
    "gpulift_step_time_seconds": "Time of one step: median window, geometric mean over launches.",
    "gpulift_step_time_low_seconds": "Lower end of the interval of the step time.",
    "gpulift_step_time_high_seconds": "Upper end of the interval of the step time.",
    "gpulift_speedup_ratio": "Baseline time / arm time: above 1 is faster.",
    "gpulift_speedup_low_ratio": "Lower end of the interval of the speedup.",
    "gpulift_speedup_high_ratio": "Upper end of the interval of the speedup.",
    "gpulift_rate_bytes_per_second": "Bytes of a step over its time.",
    "gpulift_rate_flops_per_second": "Floating-point operations of a step over its time.",
    "gpulift_rate_items_per_second": "Items of a step over its time.",
    "gpulift_qualified": "1 where the machine passes all that it was judged by, else 0.",
    "gpulift_check": "A check of a machine, by its verdict; always 1.",
    "gpulift_check_of_limit_ratio": "How far within its limit a check is: 1 and more passes.",
    "gpulift_peak_memory_bytes": "Most memory that the arm's buffers held, by where it was.",
}
WORK = ("bytes", "flops", "items")
MEMORY = ("device", "pinned", "host")


def prometheus_text(runs: Sequence[Run], judged: Sequence[JudgedRun] = ()) -> str:
    """All gauges of all runs and of the machines they judge, metric by metric, with a line feed at
    the end of each line."""
    gauges = Gauges(HELP)
    for run in runs:
        labels = _labels(run)
        _add_run(gauges, run, labels)
        for kind in KINDS:
            for case in group_cases(run.records, kind):
                _add_case(gauges, case, {**labels, "kind": kind})
    for one in judged:
        _add_checks(gauges, one)
    return gauges.text()


def _add_run(gauges: Gauges, run: Run, labels: Labels) -> None:
    context = run.records[0].context
    info = {
        "gpu": context.gpu.name if context.gpu else "",
        "card": context.gpu.card if context.gpu else "",
        "driver": context.driver,
        "cuda_driver": context.cuda_driver,
        "cuda_runtime": context.cuda_runtime,
        "host_cpu": context.host.cpu,
        "commit": context.build.commit,
        "dirty": "" if context.build.dirty is None else str(context.build.dirty).lower(),
        "method": run.records[0].method,
    }
    gauges.add("gpulift_run_info", {**labels, **info}, 1.0)
    started = min(record.began_at for record in run.records)
    gauges.add("gpulift_run_started_timestamp_seconds", labels, _seconds(started))
    for outcome in OUTCOMES:
        count = sum(record.outcome == outcome for record in run.records)
        gauges.add("gpulift_records", {**labels, "outcome": outcome}, float(count))


def _add_checks(gauges: Gauges, judged: JudgedRun) -> None:
    run = judged.summary.run
    labels = {**_labels(run), "card": run.records[0].context.card}
    answer = verdict.answer(judged.checks)
    gauges.add("gpulift_qualified", labels, float(answer.verdict == PASS))
    for check in judged.checks:
        mine = {**labels, "check": check.id}
        gauges.add("gpulift_check", {**mine, "verdict": check.verdict}, 1.0)
        if check.value and check.limit:
            ratio = check.limit / check.value if check.unit == "s" else check.value / check.limit
            gauges.add("gpulift_check_of_limit_ratio", mine, ratio)


def _labels(run: Run) -> dict[str, str]:
    return {"machine": run.records[0].context.slug, "run": run.folder.name}


def _add_case(gauges: Gauges, case: Case, labels: Labels) -> None:
    first = case.first
    for arm in first.arms:
        time = stats.step_time(case.measured, arm.name)
        if time is None:
            continue
        names = {"technique": case.technique, "case": case.case_id, "arm": arm.name}
        mine = {**labels, **names, "regime": first.regime, "clock": arm.clock}
        gauges.add("gpulift_launches", mine, float(time.launches))
        _add_estimate(gauges, "gpulift_step_time_{}seconds", mine, time)
        _add_rates(gauges, arm, mine, time)
        _add_memory(gauges, case, arm.name, mine)
        _add_speedup(gauges, case, arm, mine)


def _add_speedup(gauges: Gauges, case: Case, arm: Arm, labels: Labels) -> None:
    baseline = arms.baseline_of(case.first)
    if baseline is None or baseline is arm or arms.is_ceiling(case.first):
        return
    pair = stats.pair_ratio(case.measured, arm.name, baseline.name)
    if pair is not None:
        mine = {**labels, "baseline": baseline.name}
        _add_estimate(gauges, "gpulift_speedup_{}ratio", mine, pair.speedup)


def _add_rates(gauges: Gauges, arm: Arm, labels: Labels, time: Estimate) -> None:
    for work in WORK:
        amount = getattr(arm.cost, work) if arm.cost else 0.0
        if amount > 0:
            gauges.add(f"gpulift_rate_{work}_per_second", labels, amount / time.value)


def _add_memory(gauges: Gauges, case: Case, arm: str, labels: Labels) -> None:
    for where in MEMORY:
        peaks = [
            getattr(one, f"peak_{where}_bytes") for one in stats.measured_arms(case.measured, arm)
        ]
        known = [float(peak) for peak in peaks if peak is not None]
        most = max(known, default=None)
        gauges.add("gpulift_peak_memory_bytes", {**labels, "memory": where}, most)


def _add_estimate(gauges: Gauges, pattern: str, labels: Labels, one: Estimate) -> None:
    for end, value in (("", one.value), ("low_", one.low), ("high_", one.high)):
        gauges.add(pattern.format(end), labels, value)


def _seconds(moment: str) -> float | None:
    """Since 1970; None for an import that does not know when it was measured."""
    try:
        return datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None
