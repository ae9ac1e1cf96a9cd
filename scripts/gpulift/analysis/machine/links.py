"""Verdicts on what several GPUs do together: pairs, all-reduces, ranks; which is an outlier.

A pair is held against what cards of the model reached where two or more machines are behind it,
else against what its links can carry, and against the other pairs as `qualify --among` holds cards.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from gpulift.analysis.machine.checks import judge, judge_run, judge_share
from gpulift.analysis.machine.computed_peaks import computed_peak, expected_share
from gpulift.analysis.machine.outliers import LEAST_DEVIATION, family_of
from gpulift.analysis.machine.results import (
    FAIL,
    INCONCLUSIVE,
    PASS,
    WORST_FIRST,
    WORTH_FAILING,
    CheckResult,
    Rate,
    judged,
)
from gpulift.analysis.machine.tables import quantity
from gpulift.analysis.machine.unmeasured import LEFT_OUT
from gpulift.analysis.reference import Measured
from gpulift.analysis.summary import Summary
from gpulift.engine.node import COLLECTIVES, PEER_COPY, STRAGGLER
from gpulift.ground import text
from gpulift.ground.estimate import Estimate
from gpulift.verdicts import stats
from gpulift.verdicts.cases import Case

Pair = tuple[int, int]

NOTED_PAIR = re.compile(r"(\d+) to (\d+): (\d+) GB/s")
ENOUGH_MACHINES = 2
ROOF = "gpu_link"
PEAK = "computed peak"
LARGE = 64 << 20  # bytes from which on the link sets an all-reduce's pace
# Two H100 of results/ reach 56 % of what their links carry at 64 MiB, 69 % at 1 GiB.
ALL_REDUCE_SHARE = 0.45
LINKS = "look at the health check of NVLinks of both cards, then nvidia-smi topo -m"
RANKS = "look at this card's health and cooling, and at its cores and their other load"


def judge_node(
    summary: Summary, cards: Mapping[int, str], health: Sequence[CheckResult] = ()
) -> tuple[CheckResult, ...]:
    """All verdicts of the run that several GPUs shared; `cards` are their short hashes by index."""
    checks = judge_run(summary, summary.reference, (), filter="what several GPUs do")
    return (
        *(result for result in checks if result.id != LEFT_OUT),
        *judge_pairs(summary, cards),
        *judge_all_reduce(summary),
        *judge_ranks(summary),
        *health,
    )


def pair_rates(summary: Summary) -> dict[Pair, Estimate]:
    """Bytes/s that a GPU writes to another, over launches."""
    found: dict[Pair, list[float]] = {}
    for record in summary.run.records:
        if record.technique == PEER_COPY and record.outcome == "ok":
            for near, far, rate in NOTED_PAIR.findall(record.notes.get("pairs", "")):
                found.setdefault((int(near), int(far)), []).append(1e9 * float(rate))
    return {pair: _over_launches(rates) for pair, rates in sorted(found.items()) if min(rates) > 0}


def judge_pairs(summary: Summary, cards: Mapping[int, str]) -> list[CheckResult]:
    """A row for each pair that does not pass, one for all that do."""
    rates = pair_rates(summary)
    if not rates:
        return []
    named = {pair: _named(pair, cards) for pair in rates}
    among = (Rate.of(named[pair], "pairs", rate) for pair, rate in rates.items())
    family = family_of(among, tails=False)
    outliers = {
        one.rate.name: judged(one.verdict, reason=one.told("pairs"))
        for one in family.positions
        if one.named
    }
    median = math.exp(float(np.median([math.log(rate.value) for rate in rates.values()])))
    rows = []
    for pair, rate in rates.items():
        beside = _row(outliers.get(named[pair], judged(PASS)), rate, median, "pairs")
        alone = _judge_link(rate, summary)
        verdict = min((alone, beside), key=lambda row: WORST_FIRST.index(row.verdict))
        rows.append(replace(verdict, id=f"pairs/{named[pair]}"))
    passed = [row for row in rows if row.verdict == PASS]
    return [*(row for row in rows if row.verdict != PASS), *_passed(passed, len(rows))]


def judge_all_reduce(summary: Summary) -> list[CheckResult]:
    """The largest one over NVLink, of which the link sets the pace."""
    rates = all_reduce_rates(summary).get("nvlink", {})
    size = max(rates, default=0)
    peak = _peak(summary)
    if size < LARGE or peak is None:
        return []
    verdict = judge_share(rates[size], peak, ALL_REDUCE_SHARE, PEAK)
    row = _row(verdict, rates[size], peak, PEAK)
    return [replace(row, id=f"all_reduce/nvlink/{text.size(size)}")]


def all_reduce_rates(summary: Summary) -> dict[str, dict[int, Estimate]]:
    """Bus bytes/s by link and size, as nccl-tests counts them, of most GPUs."""
    found: dict[str, dict[int, Estimate]] = {}
    for case in _of_most_ranks(summary, COLLECTIVES, "all_reduce"):
        cost = case.arms["all_reduce"][0].cost
        if cost:
            link, size = str(case.first.case["link"]), int(case.first.case["bytes"])
            rate = stats.rate(case.times_s["all_reduce"], cost.bytes)
            found.setdefault(link, {})[size] = rate
    return found


def _of_most_ranks(summary: Summary, technique: str, arm: str) -> list[Case]:
    """Of a technique, the cases in which the arm was measured on most ranks."""
    cases = [
        (case.arms[arm][0].ranks, case)
        for case in summary.cases
        if case.technique == technique and arm in case.arms
    ]
    most = max((ranks for ranks, _ in cases), default=0)
    return [case for ranks, case in cases if ranks == most]


def judge_ranks(summary: Summary) -> list[CheckResult]:
    """Whether one rank needs longer for its own work than the others, which wait for it."""
    seen = [
        (int(arm.metrics["slowest_rank"]), arm.metrics["slowest_own_s"] / fastest_s, record)
        for case in _of_most_ranks(summary, STRAGGLER, "even")
        for record in case.measured
        for arm in record.arms
        if arm.name == "even" and (fastest_s := arm.metrics.get("fastest_own_s", 0.0)) > 0
    ]
    if not seen:
        return []
    over = _over_launches([ratio for _, ratio, _ in seen])
    slowest = {rank for rank, _, _ in seen}
    least = over.value if over.low is None else over.low
    if len(slowest) > 1 or least <= 1 + LEAST_DEVIATION:
        reason = f"none is the slowest by more than {text.percent(LEAST_DEVIATION)} in all launches"
        return [CheckResult("ranks", PASS, reason, kind="ranks")]
    (rank,), record = slowest, seen[0][2]
    gpus = record.context.gpus
    card = f", card {gpus[rank].card}" if rank < len(gpus) else ""
    reason = f"rank {rank}{card}: {100 * (over.value - 1):+.1f} % time for its own work"
    far = over.value > 1 + WORTH_FAILING and not over.one_launch
    return [CheckResult("ranks", FAIL if far else INCONCLUSIVE, reason, RANKS, kind="ranks")]


def told(summary: Summary) -> list[str]:
    """All-reduces by size, a line for each link."""
    return [
        f"All-reduce over {'NVLink' if link == 'nvlink' else 'the host'}, bus bandwidth by size: "
        + ", ".join(f"{text.size(size)} {quantity(by[size].value, 'B/s')}" for size in sorted(by))
        for link, by in sorted(all_reduce_rates(summary).items(), reverse=True)
    ]


def _over_launches(values: Sequence[float]) -> Estimate:
    logs = [math.log(value) for value in values]
    return stats.over_launches(logs, np.asarray(logs))


def _peak(summary: Summary) -> float | None:
    gpu = summary.run.records[0].context.gpu
    return computed_peak(ROOF, gpu) if gpu else None


def _judge_link(rate: Estimate, summary: Summary) -> CheckResult:
    """By what others reached, or by what the links can carry."""
    entry = _entry(summary)
    if entry is not None:
        verdict = judge(rate, entry.value, entry.tolerance)
        row = _row(verdict, rate, entry.value, "measured")
        return replace(row, cards=entry.cards, launches=entry.launches, reference=entry)
    peak, share = _peak(summary), expected_share(ROOF, "burst")
    if peak is None or share is None:
        reason = "no reference, and the driver does not say what the links carry"
        return _row(judged(INCONCLUSIVE, reason=reason), rate, None, "")
    return _row(judge_share(rate, peak, share, PEAK), rate, peak, PEAK)


def _entry(summary: Summary) -> Measured | None:
    known = summary.reference.measured if summary.reference else {}
    entry = known.get(f"roof/{ROOF}/burst")
    return entry if entry and entry.judges and entry.cards >= ENOUGH_MACHINES else None


def _passed(rows: Sequence[CheckResult], count: int) -> list[CheckResult]:
    if not rows:
        return []
    slowest = min(rows, key=lambda row: row.value or 0.0)
    value = quantity(slowest.value or 0.0, "B/s")
    reason = f"{len(rows)} of {count}; the slowest is {slowest.id.removeprefix('pairs/')}, {value}"
    return [replace(slowest, id="pairs", reason=reason)]


def _named(pair: Pair, cards: Mapping[int, str]) -> str:
    """`0 (1a2b3c4d) to 1 (5e6f7a8b)`."""
    return " to ".join(f"{one} ({cards[one]})" if cards.get(one) else str(one) for one in pair)


def _row(verdict: CheckResult, rate: Estimate, against: float | None, kind: str) -> CheckResult:
    return replace(
        verdict,
        remedy="" if verdict.verdict == PASS else LINKS,
        estimate=rate,
        unit="B/s",
        fraction=rate.value / against if against else None,
        kind=kind,
        against=against,
    )
