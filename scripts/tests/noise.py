"""Fits the noise of real duet launches, so that simulated clocks obey figures that were measured.

`python -m tests.noise` (from `scripts/`) prints the fitted figures; `--write` refits the committed
records into `data/noise.json`.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats as scipy_stats

from gpulift.records.model import Record
from gpulift.records.read import read_run
from gpulift.verdicts import stats
from gpulift.verdicts.cases import Case, group_cases
from gpulift.verdicts.duets import BASE, HEAD

Values = NDArray[np.float64]

FILE = Path(__file__).parent / "data" / "noise.json"
RESULTS = Path(__file__).resolve().parents[2] / "results" / "nvidia-h200"
DUETS = ("2026-11-21-30f4d28-3", "2026-11-21-30f4d28-4")
TWO_RUNS = ("2026-11-21-30f4d28", "2026-11-21-30f4d28-2")
LAUNCHES_OF_A_RUN = 3
NORMAL = 1000.0  # degrees of freedom from which a Student t is called normal


@dataclass(frozen=True)
class NoiseModel:
    """Noise of one case in a duet, in log ratios of head over base; both arms ran one code.

    `launch_sd`: of launch values. `between_sd`: of them, what the medians of blocks do not explain.
    `block_*`: of block values around their launch's median: SD, SD from quartiles, degrees of a
    Student t, correlation of neighbours. `warm_up`: the clock's log excess in the first block (both
    arms). `drift`: the clock's log change over a launch, straight line. `placement`: half the
    difference between launches whose base allocated first and second. `mode_*`: distance, share
    of the smaller and explained variance of the best split of launch values into two. `step_sd`:
    of one arm's own log step time from launch to launch; `window_sd`: of its windows in a launch.
    """

    case: str
    records: tuple[str, ...]
    launches: int
    blocks: int
    mean: float
    mean_p: float
    launch_sd: float
    between_sd: float
    launch_tail: float
    launch_autocorrelation: float
    placement: float
    mode_gap: float
    mode_share: float
    mode_explained: float
    block_sd: float
    block_quartile_sd: float
    block_tail: float
    block_autocorrelation: float
    warm_up: float
    drift: float
    step_sd: float
    window_sd: float
    launch_time_s: float

    @property
    def planted(self) -> bool:
        """Whether the head really is slower, so that `mean` is no noise."""
        return self.case.startswith("testing/")


@dataclass(frozen=True)
class BetweenRuns:
    """What two runs of one build on one card differ by, against what their launches explain.

    Per arm F = launches x (difference of means)^2 / 2 over the variance of launches, on log step
    times. `sd_ratio`: SD between runs over SD between launches, from the median of F.
    `beyond`: share of arms with F above its 95 % point, which is 5 % without such a component.
    """

    arms: int
    launches: int
    launch_sd: float
    sd_ratio: float
    beyond: float


def fit(records: Sequence[Record]) -> NoiseModel:
    """The noise of the launches of one duet case."""
    ordered = sorted(records, key=lambda record: record.launch)
    base, head = (_arm(ordered[0], side) for side in (BASE, HEAD))
    blocks = [_blocks(record, head, base) for record in ordered]
    values = np.array([np.median(one) for one in blocks])
    residuals = np.concatenate([one - np.median(one) for one in blocks])
    clocks = [_clock(record) for record in ordered]
    own = [np.log(stats.step_times(one)) for one in stats.measured_arms(ordered, base)]
    count = float(np.median([one.size for one in blocks]))
    block_sd = math.sqrt(float(np.mean([np.var(one, ddof=1) for one in blocks])))
    quartile_sd = float(scipy_stats.iqr(residuals, scale="normal"))
    launch_sd = float(np.std(values, ddof=1))
    of_median = math.pi / 2 * quartile_sd**2 / count
    first = np.array([record.order.allocation[0] == 0 for record in ordered if record.order])
    gap, share, explained = modes(values)
    return NoiseModel(
        case=f"{ordered[0].technique} {ordered[0].case_id}".strip(),
        records=tuple(record.id for record in ordered),
        launches=len(ordered),
        blocks=int(count),
        mean=float(np.mean(values)),
        mean_p=float(scipy_stats.ttest_1samp(values, 0.0).pvalue),
        launch_sd=launch_sd,
        between_sd=math.sqrt(max(0.0, launch_sd**2 - of_median)),
        launch_tail=tail(values),
        launch_autocorrelation=neighbours(values),
        placement=float(np.mean(values[first]) - np.mean(values[~first])) / 2,
        mode_gap=gap,
        mode_share=share,
        mode_explained=explained,
        block_sd=block_sd,
        block_quartile_sd=quartile_sd,
        block_tail=tail(residuals),
        block_autocorrelation=float(np.mean([neighbours(one) for one in blocks])),
        warm_up=float(np.mean([np.mean(one[:4]) - np.median(one) for one in clocks])),
        drift=float(np.mean([scipy_stats.theilslopes(one)[0] * one.size for one in clocks])),
        step_sd=float(np.std([np.median(one) for one in own], ddof=1)),
        window_sd=float(np.median([np.std(one, ddof=1) for one in own])),
        launch_time_s=float(np.median([record.time_s["total"] for record in ordered])),
    )


def tail(values: Values) -> float:
    """Degrees of freedom of a Student t fitted to the values; `NORMAL` at most."""
    scaled = (values - np.median(values)) / scipy_stats.iqr(values, scale="normal")
    return min(NORMAL, float(scipy_stats.t.fit(scaled)[0]))  # its search needs values near 1


def neighbours(values: Values) -> float:
    """Correlation of each value with the next."""
    return float(np.corrcoef(values[:-1], values[1:])[0, 1])


def modes(values: Values) -> tuple[float, float, float]:
    """Best split of sorted values into two: distance of means, smaller share, variance explained.

    The best split of a normal explains 2 / pi = 64 % of its variance; two clear modes, over 80 %.
    """
    ordered = np.sort(values)
    best = (0.0, 0.0, 0.0)
    total = float(np.var(ordered))
    for cut in range(1, ordered.size):
        low, high = ordered[:cut], ordered[cut:]
        share = cut / ordered.size
        gap = float(np.mean(high) - np.mean(low))
        explained = share * (1 - share) * gap**2 / total
        if explained > best[2]:
            best = (gap, min(share, 1 - share), explained)
    return best


def fit_between_runs(first: Iterable[Case], second: Iterable[Case]) -> BetweenRuns:
    """Variance components of log step times over arms that did the same work in both runs."""
    others = {(case.technique, case.case_id): case for case in second}
    within, apart = [], []
    for case in first:
        other = others.get((case.technique, case.case_id))
        if other is None:
            continue
        for arm in case.first.arms:
            pair = _two_sides(case, other, arm.name)
            if pair is not None:
                within.append(sum(float(np.var(side, ddof=1)) for side in pair) / 2)
                apart.append(float(np.mean(pair[0]) - np.mean(pair[1])) ** 2 / 2)
    ratios = LAUNCHES_OF_A_RUN * np.array(apart) / np.array(within)
    null = scipy_stats.f(1, 2 * (LAUNCHES_OF_A_RUN - 1))
    excess = (float(np.median(ratios)) / float(null.median()) - 1) / LAUNCHES_OF_A_RUN
    return BetweenRuns(
        arms=ratios.size,
        launches=LAUNCHES_OF_A_RUN,
        launch_sd=math.sqrt(float(np.median(within))),
        sd_ratio=math.sqrt(max(0.0, excess)),
        beyond=float(np.mean(ratios > null.ppf(0.95))),
    )


def load() -> tuple[dict[str, NoiseModel], BetweenRuns]:
    """The committed fits, by case."""
    raw = json.loads(FILE.read_text(encoding="utf-8"))
    models = [NoiseModel(**{**one, "records": tuple(one["records"])}) for one in raw["cases"]]
    return {one.case: one for one in models}, BetweenRuns(**raw["between_runs"])


def measure() -> tuple[list[NoiseModel], BetweenRuns]:
    """Fits the committed records."""
    cases = [c for name in DUETS for c in group_cases(read_run(RESULTS / name).records, "duet")]
    runs = [group_cases(read_run(RESULTS / name).records, "technique") for name in TWO_RUNS]
    return [fit(case.measured) for case in cases], fit_between_runs(*runs)


def dump(models: Sequence[NoiseModel], runs: BetweenRuns) -> str:
    """The data file: six significant digits, which is more than 20 launches hold."""
    cases = [_rounded(asdict(one)) for one in models]
    return json.dumps({"cases": cases, "between_runs": _rounded(asdict(runs))}, indent=1) + "\n"


def table(models: Iterable[NoiseModel], runs: BetweenRuns) -> str:
    """The fits for people; log ratios in percent."""
    lines = [
        f"{'case':45} launch between  tail autoc  place   modes (gap share expl)"
        "   block quart  tail autoc warm-up  drift    mean    p"
    ]
    for one in models:
        lines.append(
            f"{one.case:45} {100 * one.launch_sd:6.4f} {100 * one.between_sd:7.4f}"
            f" {one.launch_tail:5.3g} {one.launch_autocorrelation:+5.2f}"
            f" {100 * one.placement:+6.3f}"
            f"   {100 * one.mode_gap:6.3f} {one.mode_share:5.2f} {one.mode_explained:4.2f}  "
            f"  {100 * one.block_sd:6.3f} {100 * one.block_quartile_sd:5.3f} {one.block_tail:5.3g}"
            f" {one.block_autocorrelation:+5.2f} {100 * one.warm_up:+7.2f} {100 * one.drift:+6.2f}"
            f" {100 * one.mean:+7.4f} {one.mean_p:.2f}"
        )
    lines.append(
        f"two runs of one build, {runs.arms} arms: median launch SD {100 * runs.launch_sd:.2f} %,"
        f" run SD / launch SD {runs.sd_ratio:.2f}, beyond the 95 % point {100 * runs.beyond:.0f} %"
    )
    return "\n".join(lines)


def _rounded(fields: dict[str, Any]) -> dict[str, Any]:
    return {k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in fields.items()}


def _arm(record: Record, side: str) -> str:
    return next(arm.name for arm in record.arms if arm.name.startswith(side))


def _blocks(record: Record, head: str, base: str) -> Values:
    assert record.order is not None
    names = [arm.name for arm in record.arms]
    values = {names.index(arm.name): stats.step_times(arm) for arm in record.arms}
    return stats.block_values(record.order.blocks, names.index(head), names.index(base), values)


def _clock(record: Record) -> Values:
    """Log window times of both arms in the order in which they were taken."""
    assert record.order is not None
    turns = [iter(np.log(stats.step_times(arm))) for arm in record.arms]
    return np.array([next(turns[index]) for block in record.order.blocks for index in block])


def _two_sides(first: Case, second: Case, name: str) -> tuple[list[float], list[float]] | None:
    """Log step times of both runs; None where the work differs or launches are missing."""
    sides, costs = [], set()
    for case in (first, second):
        arms = stats.measured_arms(case.measured, name)
        sides.append([float(np.log(np.median(stats.step_times(arm)))) for arm in arms])
        costs |= {arm.cost for arm in arms}
    missing = any(len(side) != LAUNCHES_OF_A_RUN for side in sides)
    return None if missing or len(costs) != 1 else (sides[0], sides[1])


def main(arguments: Sequence[str]) -> None:
    """Prints the committed fits; with --write, makes them first."""
    if "--write" in arguments:
        FILE.write_text(dump(*measure()), encoding="utf-8")
    models, runs = load()
    print(table(models.values(), runs))


if __name__ == "__main__":
    main(sys.argv[1:])
