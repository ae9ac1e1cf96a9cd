"""The decision rules of other tools, on the launches that the gate judges too.

Each rule is a pure function of two samples, base and head. What those tools call a repetition or
a sample has two readings here, and both are judged:

- `one launch`: the windows of one launch (a window's time per step). Base is the base arm of one
  launch and head the head arm of the next, because these tools compare two processes. This is
  how they are run in practice.
- `9 launches`: the median window of each of nine launches a side, so that launch-to-launch noise is
  in the sample, which none of the tools asks for.

Windows hold many steps, so that they scatter less than the single executions that nvbench times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from gpulift.records.model import Record
from gpulift.verdicts import decision
from gpulift.verdicts.decision import GatePlan, Margins
from gpulift.verdicts.duets import BASE, HEAD
from gpulift.verdicts.stats import pair_ratio, step_cycles, step_times

Values = NDArray[np.float64]

NO_CHANGE = "no change"
REPETITIONS = 9  # what compare.py calls the fewest for a reliable test

U_TEST_ALPHA = 0.05
MEAN_LIMIT = 0.07
CLEAR_GAP = 0.005


@dataclass(frozen=True)
class Sample:
    """Repetitions of one side: seconds of a step, and SM clock cycles where they are known."""

    times: Values
    cycles: Values | None = None


@dataclass(frozen=True)
class Launch:
    """One duet: both arms' windows, and the log ratio, head over base, that gpulift takes of it."""

    base: Sample
    head: Sample
    value: float


@dataclass(frozen=True)
class Tally:
    """What a rule said in a number of trials."""

    rule: str
    repetition: str
    trials: int
    regressed: int
    improved: int


Rule = Callable[[Sample, Sample], str]


def u_test(base: Sample, head: Sample) -> str:
    """Google Benchmark's compare.py: two-sided Mann-Whitney U, a change at p < 0.05.

    tools/gbench/report.py at 058fb58: `calc_utest`, on the times that it prints first. It prints p
    and leaves the direction to the reader, who has the medians; so do we. Not here: its second
    test, on CPU time, which a duet does not have.
    """
    p_value = scipy.stats.mannwhitneyu(base.times, head.times, alternative="two-sided").pvalue
    change = float(np.median(head.times) - np.median(base.times))
    return _direction(change) if p_value < U_TEST_ALPHA else NO_CHANGE


def mean_change(base: Sample, head: Sample) -> str:
    """TorchBench's nightly detector: the means differ by more than 7 % of the base's.

    pytorch/benchmark, regression_detector.py: its default threshold, without the special limits of
    single suites.
    """
    old, new = float(np.mean(base.times)), float(np.mean(head.times))
    return _direction(new - old) if abs(new - old) / old > MEAN_LIMIT else NO_CHANGE


def clear_gap(base: Sample, head: Sample) -> str:
    """nvbench-compare-robust: [minimum, third quartile] apart by 0.5 %, in time and in cycles.

    NVIDIA/nvbench, python/scripts/nvbench_compare_robust.py at 0a2f954 (2026), its default preset,
    with per-sample clocks: FAST and SLOW as there, quartiles by its rounded rank. SAME and AMBG are
    both "no change" here. Without clocks it never says FAST or SLOW, and nor does this.
    """
    in_time = _gap(base.times, head.times)
    if base.cycles is None or head.cycles is None:
        return NO_CHANGE
    return in_time if in_time == _gap(base.cycles, head.cycles) else NO_CHANGE


RULES: dict[str, Rule] = {
    "compare.py: U test, p < 0.05": u_test,
    "one mean against another, 7 %": mean_change,
    "nvbench robust: gap of 0.5 %": clear_gap,
}


def launches_of(records: Sequence[Record]) -> list[Launch]:
    """The launches of one duet case in order; those without both arms' windows are left out."""
    made = []
    for record in sorted(records, key=lambda one: one.launch):
        names = {arm.name for arm in record.arms}
        for head in sorted(name for name in names if name.startswith(HEAD)):
            base = BASE + head.removeprefix(HEAD)
            pair = pair_ratio([record], head, base)
            if pair is not None:
                value = float(np.log(pair.ratio.value))
                made.append(Launch(_sample(record, base), _sample(record, head), value))
    return made


def tally(cases: Sequence[Sequence[Launch]], plan: GatePlan, margins: Margins) -> list[Tally]:
    """What every rule, and the gate, says of the same cases; call it per true effect.

    The rules of others get as many disjoint trials as the launches of a case hold (two launches or
    18 for one trial); the gate judges each case once, on all of its launches.
    """
    made = []
    for repetition, pairs in (("one launch", _next_launch), ("9 launches", _launch_medians)):
        samples = [pair for case in cases for pair in pairs(case)]
        for name, rule in RULES.items():
            made.append(_count(name, repetition, [rule(*pair) for pair in samples]))
    verdicts = [_gate(case, plan, margins) for case in cases]
    return [*made, _count("gpulift gate", "duet launches", verdicts)]


def _gate(case: Sequence[Launch], plan: GatePlan, margins: Margins) -> str:
    values = [launch.value for launch in case]
    return decision.decide_in_order(values, margins, plan).verdict


def _next_launch(case: Sequence[Launch]) -> Iterator[tuple[Sample, Sample]]:
    for first, second in zip(case[::2], case[1::2], strict=False):
        yield first.base, second.head


def _launch_medians(case: Sequence[Launch]) -> Iterator[tuple[Sample, Sample]]:
    for start in range(0, len(case) - 2 * REPETITIONS + 1, 2 * REPETITIONS):
        group = case[start : start + 2 * REPETITIONS]
        base = _medians([launch.base for launch in group[::2]])
        head = _medians([launch.head for launch in group[1::2]])
        yield base, head


def _medians(samples: Sequence[Sample]) -> Sample:
    times = np.array([np.median(one.times) for one in samples])
    known = [one.cycles for one in samples if one.cycles is not None]
    complete = len(known) == len(samples)
    return Sample(times, np.array([np.median(one) for one in known]) if complete else None)


def _sample(record: Record, name: str) -> Sample:
    arm = record.arm(name)
    assert arm is not None, "the pair was made from it"
    return Sample(step_times(arm), step_cycles(arm))


def _gap(base: Values, head: Values) -> str:
    (base_low, base_high), (head_low, head_high) = _interval(base), _interval(head)
    if head_low > base_high and head_low / base_high - 1 >= CLEAR_GAP:
        return decision.REGRESSED
    if base_low > head_high and base_low / head_high - 1 >= CLEAR_GAP:
        return decision.IMPROVED
    return NO_CHANGE


def _interval(values: Values) -> tuple[float, float]:
    ordered = np.sort(values)
    return float(ordered[0]), float(ordered[(75 * (ordered.size - 1) + 50) // 100])


def _direction(change: float) -> str:
    if change == 0:
        return NO_CHANGE
    return decision.REGRESSED if change > 0 else decision.IMPROVED


def _count(rule: str, repetition: str, verdicts: Sequence[str]) -> Tally:
    regressed, improved = (
        sum(one == verdict for one in verdicts)
        for verdict in (decision.REGRESSED, decision.IMPROVED)
    )
    return Tally(rule, repetition, len(verdicts), regressed, improved)
