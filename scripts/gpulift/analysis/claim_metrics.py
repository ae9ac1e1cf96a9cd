"""What a claim may ask of launches of a case: gains of an arm over a baseline, by metric.

A metric of `OF_TIMES` has the host's pace, or a sleep, in it; of the others no pace makes a figure
wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from gpulift.analysis.ledger import Experiment
from gpulift.ground.estimate import Estimate
from gpulift.records.model import Arm, Record
from gpulift.verdicts import stats

Metric = Callable[[Sequence[Record], Experiment], "Estimate | None"]


def _speedup(records: Sequence[Record], test: Experiment) -> Estimate | None:
    pair = stats.pair_ratio(records, test.arm, test.baseline)
    return pair.speedup if pair else None


def _rate(records: Sequence[Record], test: Experiment) -> Estimate | None:
    """Items per second of the arm over the baseline's: the speedup, where items are counted."""
    counted = all(_items(records, name) for name in (test.arm, test.baseline))
    return _speedup(records, test) if counted else None


def _batch(records: Sequence[Record], test: Experiment) -> Estimate | None:
    """Items of a step of the arm over the baseline's: counted, so that the interval is a point."""
    arm, baseline = (_items(records, name) for name in (test.arm, test.baseline))
    if not arm or not baseline:
        return None
    return Estimate(arm / baseline, arm / baseline, arm / baseline, len(records))


def _items(records: Sequence[Record], arm: str) -> float:
    cost = stats.measured_arms(records, arm)[0].cost
    return cost.items if cost else 0.0


def _memory(records: Sequence[Record], test: Experiment) -> Estimate | None:
    """Peak memory of the baseline over the arm's: of the device where both used it, else the host.

    None where an arm needed none beyond what all share.
    """
    return _ratio(records, test, _peaks)


def _fragmentation(records: Sequence[Record], test: Experiment) -> Estimate | None:
    """What the baseline's allocator holds over what is in it, over the same of the arm."""
    return _ratio(records, test, lambda *pair: _both(map(_held_over_used, pair)))


def _cold_start(records: Sequence[Record], test: Experiment) -> Estimate | None:
    """A step of the baseline over the arm's cold start, which is its first three."""

    def values(baseline: Arm, arm: Arm) -> Values | None:
        return _both((baseline.step_quartiles_s[1], arm.metrics.get("cold_start_s")))

    return _ratio(records, test, values)


def _noted(name: str) -> Metric:
    """What the baseline noted under this name over what the arm did."""

    def values(*pair: Arm) -> Values | None:
        return _both(arm.metrics.get(name) for arm in pair)

    return lambda records, test: _ratio(records, test, values)


Values = tuple[float, float]  # of the baseline and the arm


def _ratio(
    records: Sequence[Record], test: Experiment, values: Callable[[Arm, Arm], Values | None]
) -> Estimate | None:
    """The baseline's value over the arm's, over launches; None where a launch has none."""
    logs = []
    for record in records:
        baseline, arm = (
            stats.measured_arms([record], name)[0] for name in (test.baseline, test.arm)
        )
        pair = values(baseline, arm)
        if pair is None:
            return None
        logs.append(float(np.log(pair[0] / pair[1])))
    return stats.over_launches(logs, np.asarray(logs))


def _both(values: Iterable[float | None]) -> Values | None:
    """None where one of them is missing."""
    first, second = values
    return (first, second) if first and second else None


def _held_over_used(arm: Arm) -> float | None:
    held, used = (arm.metrics.get(f"peak_{kind}_bytes") for kind in ("reserved", "allocated"))
    return held / used if held and used else None


def _peaks(baseline: Arm, arm: Arm) -> tuple[int, int] | None:
    on_device = (baseline.peak_device_bytes, arm.peak_device_bytes)
    on_host = (baseline.peak_host_bytes, arm.peak_host_bytes)
    for first, second in (on_device, on_host):
        if first and second:
            return first, second
        if first or second:  # one used it and the other did not: no ratio says how much that is
            return None
    return None


OF_TIMES = (
    "speedup",
    "rate",
    "cold_start",
    "cpu_time",
    "restore_time",
    "training_slowdown",
)  # which the host's pace, or a sleep, is in
OF_MEMORY = ("memory", "batch")
METRICS: Mapping[str, Metric] = {
    "speedup": _speedup,
    "cpu_time": lambda records, test: stats.cpu_ratio(records, test.baseline, test.arm),
    "memory": _memory,
    "rate": _rate,
    "batch": _batch,
    "fragmentation": _fragmentation,
    "cold_start": _cold_start,
    "held_out_loss": _noted("held_out_loss"),
    "checkpoint_bytes": _noted("checkpoint_bytes"),
    "restore_time": _noted("restore_s"),
    "training_slowdown": _noted("training_slowdown_ratio"),
}
