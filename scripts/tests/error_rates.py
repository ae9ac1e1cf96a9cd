"""Error rates of the verdicts on simulated clocks; `python -m tests.error_rates SUITES` tabulates.

The vectorised filters only find the cases on which the verdict in question is possible at all;
`decision` itself then gives the verdict on each of them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats as scipy_stats

from gpulift.ground.estimate import CONFIDENCE
from gpulift.verdicts import decision
from gpulift.verdicts.decision import DUET, TWO_RUNS, GatePlan, Margins
from tests.noise import NoiseModel, load
from tests.simulated_clock import BLOCKS, Clock, Extremes, Values, clocks, hostile

SEED = 20261121
BATCH = 20_000  # cases in memory at once
MATMUL = "precision/matmul shape:2048x2048x2048"
HOST = "testing/planted_host"
SUITES = (40, 200)  # cases of a suite, rows of a comparison
EFFECTS = (0.0, 0.002, 0.005, 0.01, 0.02, 0.05)


@dataclass(frozen=True)
class Rate:
    """A share with its one-sided 95 % bounds (Clopper and Pearson)."""

    hits: int
    trials: int

    @property
    def share(self) -> float:
        return self.hits / self.trials

    @property
    def upper(self) -> float:
        """The share is below this with 95 % confidence."""
        result = scipy_stats.binomtest(self.hits, self.trials, alternative="less")
        return float(result.proportion_ci(0.95).high)

    def above(self, share: float) -> bool:
        """Whether the true share is shown to be above, at 99.9 %: a test at a fixed seed."""
        result = scipy_stats.binomtest(self.hits, self.trials, share, alternative="greater")
        return float(result.pvalue) < 1e-3

    def __str__(self) -> str:
        return f"{100 * self.share:6.2f} % (< {100 * self.upper:5.2f} %)"


@dataclass(frozen=True)
class Powers:
    """What becomes of a true effect, and what that costs in launches of one case."""

    regressed: float
    improved: float
    equivalent: float
    launches: float


def fitted() -> tuple[dict[str, NoiseModel], Extremes]:
    """The fitted cases by name, and the worst of each kind of noise among them."""
    models, _ = load()
    return models, Extremes.of(models.values())


def beyond(
    values: Values, sign: int, alpha: float, least: float, null: float = 0.0
) -> NDArray[np.bool_]:
    """Where the launch values of a case show a change in one direction, one row per case.

    `null` is the change that is tested against.
    """
    count = values.shape[1]
    mean = sign * values.mean(axis=1)
    error = np.maximum(values.std(axis=1, ddof=1) / math.sqrt(count), decision.SMALLEST_ERROR)
    p_values = scipy_stats.t.sf((mean - math.log1p(null)) / error, count - 1)
    found: NDArray[np.bool_] = (mean > math.log1p(least)) & (p_values < alpha)
    return found


def suite_false_alarms(clock: Clock, plan: GatePlan, suites: int, seed: int = SEED) -> Rate:
    """Suites of A/A cases in which the gate finds one regression or more."""
    random = np.random.default_rng(seed)
    alarms = 0
    for start in range(0, suites, step := max(1, BATCH // plan.cases)):
        count = min(step, suites - start)
        wanted = _all_launches(plan) if clock.remembers else plan.screens[-1]
        offsets = clock.offsets(random, count * plan.cases, wanted)
        first = clock.measure(random, offsets[:, : plan.screens[-1]])
        flagged = np.flatnonzero(_may_be_flagged(first, plan))
        fresh = offsets[flagged, plan.screens[-1] :]
        if not clock.remembers:
            fresh = clock.offsets(random, flagged.size, plan.looks[-1])
        second = clock.measure(random, fresh)
        rows = regressed_rows(first[flagged], second, plan)
        alarms += len({int(flagged[row]) // plan.cases for row in rows})
    return Rate(alarms, suites)


def regressed_rows(first: Values, second: Values, plan: GatePlan) -> list[int]:
    """The cases, one a row, that the gate calls regressed."""
    shown = np.zeros(len(first), dtype=bool)
    for look in plan.looks:
        shown |= beyond(second[:, :look], 1, plan.look_alpha, DUET.least, DUET.least)
    shown &= _may_be_flagged(first, plan)
    return [
        int(row)
        for row in np.flatnonzero(shown)
        if decision.decide_gate(first[row], second[row], DUET, plan).verdict == decision.REGRESSED
    ]


def _may_be_flagged(first: Values, plan: GatePlan) -> NDArray[np.bool_]:
    """Where any look of the screen shows a slow-down; a screen may end before that look."""
    found = np.zeros(len(first), dtype=bool)
    for look in plan.screens:
        found |= beyond(first[:, :look], 1, plan.screen_look_alpha, DUET.least)
    return found


def _all_launches(plan: GatePlan) -> int:
    return plan.screens[-1] + plan.looks[-1]


def gate_verdicts(
    clock: Clock, effect: float, plan: GatePlan, cases: int, margins: Margins = DUET
) -> list[decision.Verdict]:
    """Verdicts of the gate on cases whose head takes `effect` longer (a fraction)."""
    random = np.random.default_rng(SEED)
    values = clock.values(random, cases, _all_launches(plan)) + math.log1p(effect)
    return [decision.decide_in_order(row, margins, plan) for row in values]


def powers(clock: Clock, effect: float, plan: GatePlan, cases: int) -> Powers:
    """Shares of verdicts, and mean launches, under a true effect."""
    verdicts = gate_verdicts(clock, effect, plan, cases)
    names = [one.verdict for one in verdicts]
    launches = [_launches(one) for one in verdicts]
    return Powers(
        names.count(decision.REGRESSED) / cases,
        names.count(decision.IMPROVED) / cases,
        names.count(decision.EQUIVALENT) / cases,
        float(np.mean(launches)),
    )


def _launches(verdict: decision.Verdict) -> int:
    """Of both stages: the last look of each is in the path."""
    prefix = "Paired launches: "
    lines = [line.removeprefix(prefix) for line in verdict.path if line.startswith(prefix)]
    looks = [int(line.split(";")[0]) for line in lines]
    return looks[0] + (looks[-1] if len(looks) > 1 else 0)


def smallest_effect_found(clock: Clock, plan: GatePlan, cases: int) -> tuple[float, Rate]:
    """The median smallest effect of A/A verdicts, and the share of cases found when it is true."""
    named = [one.smallest_effect for one in gate_verdicts(clock, 0.0, plan, cases)]
    effect = float(np.median([one for one in named if one is not None]))
    found = [one.verdict for one in gate_verdicts(clock, effect, plan, cases)]
    return effect, Rate(found.count(decision.REGRESSED), cases)


def wrongly_equivalent(clock: Clock, plan: GatePlan, cases: int, seed: int = SEED) -> Rate:
    """Cases that are called equivalent although the head is slower by exactly the margin."""
    random = np.random.default_rng(seed)
    margin = math.log1p(DUET.equivalent)
    values = clock.values(random, cases, _all_launches(plan)) + margin
    split, alpha = plan.screens[-1], decision.EQUIVALENCE_ALPHA
    stages = [(values[:, :n], plan.equivalence_alpha) for n in plan.screens]
    stages += [(values[:, split : split + n], alpha) for n in plan.looks]
    possible = np.zeros(cases, dtype=bool)
    for stage, level in stages:
        error = stage.std(axis=1, ddof=1) / math.sqrt(stage.shape[1])
        half = scipy_stats.t.ppf(1 - level, stage.shape[1] - 1) * error
        possible |= np.abs(stage.mean(axis=1)) + half < margin * (1 + 1e-9)
    hits = sum(
        decision.decide_gate(row[:split], row[split:], DUET, plan).verdict == decision.EQUIVALENT
        for row in values[possible]
    )
    return Rate(hits, cases)


def coverage(draw: Callable[[], decision.Difference | None], truth: float, trials: int) -> Rate:
    """Share of 95 % intervals that hold the truth."""
    hits = 0
    for _ in range(trials):
        one = draw()
        assert one is not None
        low, high = one.interval(CONFIDENCE)
        hits += low <= truth <= high
    return Rate(hits, trials)


def paired_coverage(clock: Clock, launches: int, trials: int) -> Rate:
    """Of `decision.paired` over launches of an A/A duet."""
    rows = iter(clock.values(np.random.default_rng(SEED), trials, launches))
    return coverage(lambda: decision.paired(next(rows)), 0.0, trials)


def independent_coverage(clock: Clock, launches: int, trials: int) -> Rate:
    """Of `decision.independent`: two runs, whose launches each have the clock's noise."""
    random = np.random.default_rng(SEED)
    sides = [iter(clock.values(random, trials, launches)) for _ in range(2)]
    return coverage(lambda: decision.independent(next(sides[0]), next(sides[1])), 0.0, trials)


COVERAGES = (paired_coverage, independent_coverage)


def u_test_alarms(noise: NoiseModel, trials: int) -> Rate:
    """Unchanged cases that a Mann-Whitney U test at 0.05 on the windows of two launches, one a
    side, calls slower: repetitions of one process are no launches."""
    random = np.random.default_rng(SEED)
    clock = Clock(noise.between_sd, noise.block_quartile_sd)
    offsets = clock.offsets(random, trials, 1)[:, 0]
    levels = noise.step_sd * random.standard_normal((trials, 2))
    windows = clock.block_sd * random.standard_normal((trials, 2, 2 * BLOCKS))
    base = levels[:, :1] + windows[:, 0]
    head = levels[:, 1:] + offsets[:, None] + windows[:, 1]
    found = scipy_stats.mannwhitneyu(base, head, axis=1, alternative="two-sided").pvalue < 0.05
    slower = np.median(head, axis=1) > np.median(base, axis=1)
    return Rate(int(np.sum(found & slower)), trials)


def family_false_alarms(
    clock: Clock,
    rows: int,
    runs: int,
    between_runs: float = 0.0,
    launches: int = 3,
    head_noise: float = 1.0,
) -> Rate:
    """Comparisons of two runs of one code in which a row regressed.

    `between_runs`: SD of what a run adds to all its launches of a row. `head_noise`: how much more
    the head's launches scatter than the base's.
    """
    random = np.random.default_rng(SEED)
    sides = [clock.values(random, runs * rows, launches) for _ in range(2)]
    sides[1] *= head_noise
    base, head = (side + between_runs * random.standard_normal((runs * rows, 1)) for side in sides)
    result = scipy_stats.ttest_ind(head, base, axis=1, equal_var=False, alternative="greater")
    smallest = result.pvalue.reshape(runs, rows).min(axis=1)
    possible = np.flatnonzero(smallest < 1.01 * decision.FAMILY_ALPHA / rows)
    alarms = 0
    for run in possible:
        own = slice(run * rows, (run + 1) * rows)
        alarms += _family_regressed(base[own], head[own])
    return Rate(alarms, runs)


def _family_regressed(base: Values, head: Values) -> bool:
    made = {row: decision.independent(base[row], head[row]) for row in range(len(base))}
    known = {row: one for row, one in made.items() if one is not None}
    verdicts = decision.decide_family(known, dict.fromkeys(known, TWO_RUNS))
    return any(one.verdict == decision.REGRESSED for one in verdicts.values())


def tabulate(suites: int) -> None:
    """Prints every rate; false alarms over this many suites."""
    models, worst = fitted()
    machines = {
        f"{name.split()[0]} x{factor}": clocks(models[name], worst, factor)
        for name in (MATMUL, HOST)
        for factor in (1, 3)
    }
    _print_false_alarms(machines, suites)
    _print_limits(models, worst, suites // 10)
    _print_family(models[MATMUL], worst, suites // 10)
    _print_coverage(clocks(models[HOST], worst))
    _print_equivalence(machines)
    _print_powers(machines, models)
    _print_smallest_effects(machines)
    for name, noise in models.items():
        _row(name, "U test, unchanged", u_test_alarms(noise, 900))


def _print_false_alarms(machines: Mapping[str, Mapping[str, Clock]], suites: int) -> None:
    print(f"\nSuites of A/A cases with a false regression, gate, {suites} suites")
    for machine, kinds in machines.items():
        for kind, clock in kinds.items():
            rates = [suite_false_alarms(clock, GatePlan(cases), suites) for cases in SUITES]
            _row(machine, kind, *rates)


def _print_limits(models: Mapping[str, NoiseModel], worst: Extremes, suites: int) -> None:
    print("\nThe same on clocks that break what the gate assumes")
    for factor in (1, 3):
        for name in (MATMUL, HOST):
            for kind, clock in hostile(models[name], worst, factor).items():
                rates = [suite_false_alarms(clock, GatePlan(cases), suites) for cases in SUITES]
                _row(f"{name.split()[0]} x{factor}", kind, *rates)


def _print_family(noise: NoiseModel, worst: Extremes, runs: int) -> None:
    print("\nTwo runs of one code, 3 launches a side, with a false regression: 40, 200 rows")
    for kind, clock in clocks(noise, worst, 3).items():
        _row("no run effect", kind, *(family_false_alarms(clock, n, runs) for n in SUITES))
    white = clocks(noise, worst, 3)["white"]
    for ratio in (0.3, 0.5, 1.0, 2.0):
        between = ratio * math.hypot(white.offset_sd, 1.2 * white.block_sd / math.sqrt(8))
        for launches in (3, 8):
            rates = (family_false_alarms(white, n, runs, between, launches) for n in SUITES)
            _row(f"run SD {ratio:g} x launch SD", f"{launches} launches", *rates)
    for factor in (3, 10, 30):
        rates = (family_false_alarms(white, n, runs, head_noise=factor) for n in SUITES)
        _row(f"head scatters {factor} x more", "3 launches", *rates)


def _print_coverage(kinds: Mapping[str, Clock], trials: int = 4000) -> None:
    print("\nCoverage of 95 % intervals: paired, then independent, at 3, 4 and 8 launches")
    for kind, clock in kinds.items():
        rates = [one(clock, n, trials) for one in COVERAGES for n in (3, 4, 8)]
        print(f"{kind:16}", *(f"{100 * rate.share:6.2f}" for rate in rates))


def _print_equivalence(machines: Mapping[str, Mapping[str, Clock]]) -> None:
    print("\nCalled equivalent with the head slower by exactly the margin, 20,000 cases, N = 40")
    for machine, kinds in machines.items():
        for kind, clock in kinds.items():
            _row(machine, kind, wrongly_equivalent(clock, GatePlan(40), 20_000))


def _print_powers(
    machines: Mapping[str, Mapping[str, Clock]], models: Mapping[str, NoiseModel]
) -> None:
    print("\nRegressed, in % of 500 cases, N = 40, and (mean launches, seconds of one case)")
    print(f"{'':44}", *(f"{100 * effect:>18g} %" for effect in EFFECTS))
    seconds = {name.split()[0]: model.launch_time_s for name, model in models.items()}
    for machine, kinds in machines.items():
        for kind, clock in kinds.items():
            made = [powers(clock, effect, GatePlan(40), 500) for effect in EFFECTS]
            time_s = seconds[machine.split()[0]]
            cells = [
                f"{100 * one.regressed:6.1f} ({one.launches:4.1f}, {one.launches * time_s:4.1f} s)"
                for one in made
            ]
            print(f"{machine:28}{kind:16}", *cells)


def _print_smallest_effects(machines: Mapping[str, Mapping[str, Clock]]) -> None:
    print(
        "\nThe median smallest effect that A/A verdicts name, and how often the gate then finds it"
    )
    for machine, kinds in machines.items():
        effect, found = smallest_effect_found(kinds["white"], GatePlan(40), 500)
        print(f"{machine:28}{100 * effect:6.2f} % {found}")


def _row(machine: str, kind: str, *rates: Rate) -> None:
    print(f"{machine:28}{kind:16}", *rates, flush=True)


if __name__ == "__main__":
    tabulate(int(sys.argv[1]))
