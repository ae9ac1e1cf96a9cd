"""From launch values to verdicts: every branch, against hand-made figures and scipy's own tests."""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from gpulift.ground import steps
from gpulift.verdicts import decision, stats
from gpulift.verdicts.decision import DUET, TWO_RUNS, Difference, GatePlan, Margins, Verdict

PLAN = GatePlan(40)
MIRROR = {
    decision.REGRESSED: decision.IMPROVED,
    decision.IMPROVED: decision.REGRESSED,
    decision.EQUIVALENT: decision.EQUIVALENT,
    decision.INCONCLUSIVE: decision.INCONCLUSIVE,
}
SLOWER_FIRST = [0.030, 0.031, 0.029, 0.030]

Made = TypeVar("Made")

log_ratios = st.integers(-50_000, 50_000).map(lambda parts: parts * 1e-6)  # what timers resolve
launch_values = st.lists(log_ratios, min_size=4, max_size=4)
fresh_values = st.lists(log_ratios, min_size=0, max_size=128)


def difference(log_mean: float, error: float = 0.001, launches: int = 8) -> Difference:
    return Difference(log_mean, error, launches - 1.0, launches, launches)


def known(made: Made | None) -> Made:
    assert made is not None
    return made


def spread(centre: float, sd: float, count: int) -> list[float]:
    """Values with exactly this mean, evenly spread to exactly this standard deviation."""
    line = np.linspace(-1, 1, count)
    return [float(one) for one in centre + sd * line / np.std(line, ddof=1)]


def mixed(centre: float, sd: float, count: int) -> list[float]:
    """The same, large and small in turn, so that the first of them are like all."""
    ordered = spread(centre, sd, count)
    return [one for pair in zip(ordered[: count // 2], ordered[::-1], strict=False) for one in pair]


# --- Differences ---


def test_paired_is_the_one_sample_t_test() -> None:
    values = [0.011, 0.018, 0.009, 0.021]
    one = known(decision.paired(values))
    assert one.degrees == 3
    assert (one.base_launches, one.head_launches) == (4, 4)
    slower = scipy_stats.ttest_1samp(values, 0.0, alternative="greater")
    faster = scipy_stats.ttest_1samp(values, 0.0, alternative="less")
    assert one.p_slower() == pytest.approx(slower.pvalue)
    assert one.p_faster() == pytest.approx(faster.pvalue)


def test_paired_has_the_interval_of_the_reports() -> None:
    values = [0.011, 0.018, 0.009, 0.021]
    ratio = known(decision.paired(values)).ratio
    shown = stats.over_launches(values, np.array([]))
    assert ratio.value == pytest.approx(shown.value)
    assert ratio.low == pytest.approx(shown.low)
    assert ratio.high == pytest.approx(shown.high)
    assert ratio.launches == shown.launches


def test_independent_is_welchs_t_test() -> None:
    base, head = [1.0, 1.2, 1.1], [1.4, 1.9, 1.2, 1.6]
    one = known(decision.independent(base, head))
    test = scipy_stats.ttest_ind(head, base, equal_var=False, alternative="greater")
    assert one.log_mean == pytest.approx(1.525 - 1.1)
    assert one.degrees == pytest.approx(test.df)
    assert one.p_slower() == pytest.approx(test.pvalue)
    assert (one.base_launches, one.head_launches) == (3, 4)
    assert one.ratio.launches == 3


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_launches_are_no_difference(count: int) -> None:
    assert decision.paired([0.1] * count) is None
    assert decision.independent([0.1] * count, [0.1, 0.2]) is None
    assert decision.independent([0.1, 0.2], [0.1] * count) is None


def test_equal_values_are_no_proof_of_a_change_below_the_timers_resolution() -> None:
    one = known(decision.paired([1e-7] * 4))
    assert one.standard_error == decision.SMALLEST_ERROR
    assert one.p_slower() > 0.4
    other = known(decision.independent([0.5] * 3, [0.5] * 3))
    assert (other.standard_error, other.degrees) == (decision.SMALLEST_ERROR, 4)
    assert other.p_slower() == pytest.approx(0.5)


def test_one_side_without_spread_leaves_the_degrees_of_the_other() -> None:
    one = known(decision.independent([0.5] * 3, [0.1, 0.2, 0.3, 0.6]))
    assert one.degrees == pytest.approx(3)


def test_swapping_sides_mirrors_a_difference() -> None:
    base, head = [1.0, 1.2, 1.1], [1.4, 1.9, 1.2, 1.6]
    one, other = (known(decision.independent(*sides)) for sides in ((base, head), (head, base)))
    assert other.log_mean == -one.log_mean
    assert other.p_faster() == pytest.approx(one.p_slower())
    assert other.interval(0.9) == pytest.approx(tuple(-end for end in reversed(one.interval(0.9))))


def test_change_is_relative_to_the_base() -> None:
    assert difference(math.log(1.25)).change == pytest.approx(0.25)
    assert difference(math.log(0.8)).change == pytest.approx(-0.2)


@pytest.mark.parametrize(("centre", "inside"), [(0.0, True), (0.0085, True), (0.0095, False)])
def test_within_needs_the_90_percent_interval_inside(centre: float, inside: bool) -> None:
    """With 7 degrees t(0.95) = 1.895, so that the interval reaches 0.00095 to each side."""
    for sign in (1, -1):
        assert difference(sign * centre, error=0.0005).within(0.01) is inside


def test_smallest_effect_is_the_margin_where_launches_agree() -> None:
    one = difference(0.0, error=1e-9)
    assert one.smallest_effect(0.05, 0.0025) == pytest.approx(0.0025, rel=1e-4)


def test_smallest_effect_adds_both_errors_to_the_least_change() -> None:
    """t(0.95) and t(0.9) with 7 degrees are 1.895 and 1.415."""
    expected = 1.0025 * math.exp((1.8946 + 1.4149) * 0.01) - 1
    assert difference(0.0, error=0.01).smallest_effect(0.05, 0.0025) == pytest.approx(
        expected, rel=1e-4
    )


def test_launches_to_see_an_effect_are_the_fewest_that_would() -> None:
    sd = 0.01

    def after(launches: int) -> float:
        """Of launches of each side that vary so."""
        error, degrees = sd * math.sqrt(2 / launches), 2.0 * (launches - 1)
        one = Difference(0.0, error, degrees, launches, launches)
        return one.smallest_effect(1e-4, 0.005)

    now = Difference(0.0, sd * math.sqrt(2 / 3), 4.0, 3, 3)
    fewest = now.launches_to_see(0.03, 1e-4, 0.005, 64)
    assert fewest is not None
    assert after(fewest) <= 0.03 < after(fewest - 1)
    assert now.launches_to_see(0.03, 1e-4, 0.005, fewest - 1) is None
    assert now.launches_to_see(10.0, 1e-4, 0.005, 64) == 4, "more than there are"
    assert now.launches_to_see(0.004, 1e-4, 0.005, 64) is None, "below what counts as a change"


def test_the_gate_promises_no_effect_that_only_one_stage_would_see() -> None:
    one = decision.paired([0.0001, -0.0001, 0.0002, -0.0002])
    assert one is not None
    verdict = decision.decide_gate([0.0001, -0.0001, 0.0002, -0.0002], [], DUET, GatePlan(40))
    assert verdict.smallest_effect is not None
    assert verdict.smallest_effect > DUET.least
    many = decision.decide_gate([0.0001, -0.0001, 0.0002, -0.0002], [], DUET, GatePlan(4000))
    assert many.smallest_effect is not None
    assert many.smallest_effect >= verdict.smallest_effect


def test_wild_launches_have_finite_figures() -> None:
    wild = decision.independent([0, 0], [0, 0.3])
    assert wild is not None
    family = decision.decide_family(
        dict.fromkeys(range(200), wild), dict.fromkeys(range(200), DUET)
    )
    assert all(math.isfinite(one.smallest_effect or 0) for one in family.values())
    far = decision.paired([0.0, 1400.0, 0.0, 700.0])
    assert far is not None
    assert far.ratio.high is not None
    assert math.isfinite(far.ratio.high)
    assert decision.describe(far, steps.PAIRED)


def test_a_difference_that_underflows_has_degrees_of_freedom() -> None:
    tiny = decision.independent([0, 0], [0, 1e-100])
    assert tiny is not None
    assert tiny.degrees == 2


# --- Holm ---


def test_holm_by_hand() -> None:
    """Sorted 0.01, 0.03, 0.04, times 3, 2, 1: 0.03, 0.06, 0.04, which may not fall: 0.06."""
    made = decision.holm({"a": 0.01, "b": 0.04, "c": 0.03})
    assert made == {"a": pytest.approx(0.03), "b": pytest.approx(0.06), "c": pytest.approx(0.06)}


def test_holm_stays_a_probability_and_takes_ties_and_nothing() -> None:
    assert decision.holm({"a": 0.9, "b": 0.8}) == {"a": 1.0, "b": 1.0}
    tied = decision.holm({"a": 0.02, "b": 0.02})
    assert tied == {"a": pytest.approx(0.04), "b": pytest.approx(0.04)}
    nothing: dict[str, float] = {}
    assert decision.holm(nothing) == {}


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_lies_between_no_correction_and_bonferroni(p_values: list[float]) -> None:
    for index, adjusted in decision.holm(dict(enumerate(p_values))).items():
        assert p_values[index] <= adjusted <= min(1.0, len(p_values) * p_values[index])


# --- Two runs ---


def family(differences: dict[str, Difference], margins: Margins = TWO_RUNS) -> dict[str, Verdict]:
    return decision.decide_family(differences, dict.fromkeys(differences, margins))


@pytest.mark.parametrize(
    ("one", "verdict"),
    [
        (difference(0.02), decision.REGRESSED),
        (difference(-0.02), decision.IMPROVED),
        (difference(0.004, error=1e-4), decision.EQUIVALENT),  # certain, and below the least
        (difference(0.0), decision.EQUIVALENT),
        (difference(0.02, error=0.02), decision.INCONCLUSIVE),
        (difference(0.0, error=0.02), decision.INCONCLUSIVE),
    ],
)
def test_verdicts_on_two_runs(one: Difference, verdict: str) -> None:
    made = family({"row": one})["row"]
    assert made.verdict == verdict
    assert made.difference is one
    assert made.path[-1] == f"Verdict: {verdict}"
    changed = verdict in (decision.REGRESSED, decision.IMPROVED)
    assert (made.smallest_effect is None) is changed
    assert ("would have been seen" in made.reason) is (verdict == decision.INCONCLUSIVE)


def test_a_row_that_regresses_alone_does_not_among_many() -> None:
    """p = 0.0031 of more than 0.5 % (t = 3.9, 7 degrees): below 1 % alone, but not times 10."""
    row = difference(0.0117 + math.log1p(0.005), error=0.003)
    quiet = {f"quiet {n}": difference(0.0) for n in range(9)}
    assert family({"row": row})["row"].verdict == decision.REGRESSED
    assert family({"row": row, **quiet})["row"].verdict == decision.INCONCLUSIVE


def test_every_row_has_its_own_margins() -> None:
    rows = {"fine": difference(0.008, error=1e-4), "coarse": difference(0.008, error=1e-4)}
    margins = {"fine": TWO_RUNS, "coarse": TWO_RUNS.above_floor(0.02)}
    made = decision.decide_family(rows, margins)
    assert made["fine"].verdict == decision.REGRESSED
    assert made["coarse"].verdict == decision.EQUIVALENT  # within 1 %


def test_a_floor_does_not_widen_what_counts_as_no_change() -> None:
    rows = {"coarse": difference(0.015, error=1e-4)}
    made = decision.decide_family(rows, {"coarse": TWO_RUNS.above_floor(0.02)})
    assert made["coarse"].verdict == decision.INCONCLUSIVE
    assert (made["coarse"].smallest_effect or 0) > 0.02


def test_no_rows_no_verdicts() -> None:
    assert family({}) == {}


def test_floor_never_makes_margins_finer() -> None:
    assert TWO_RUNS.above_floor(None) == TWO_RUNS
    assert TWO_RUNS.above_floor(0.001) == TWO_RUNS
    assert TWO_RUNS.above_floor(0.02) == Margins(least=0.02, equivalent=0.01)


@settings(max_examples=60, derandomize=True)
@given(st.permutations(range(8)))
def test_the_order_of_rows_does_not_matter(order: list[int]) -> None:
    rows = {f"{n}": difference(0.002 * n, error=0.0005 * (1 + n % 3)) for n in range(8)}
    shuffled = {f"{n}": rows[f"{n}"] for n in order}
    assert family(shuffled) == family(rows)


@settings(max_examples=100, derandomize=True)
@given(st.lists(st.tuples(launch_values, launch_values), min_size=1, max_size=5))
def test_swapping_two_runs_mirrors_every_verdict(
    sides: list[tuple[list[float], list[float]]],
) -> None:
    rows = {f"{n}": known(decision.independent(b, h)) for n, (b, h) in enumerate(sides)}
    swapped = {f"{n}": known(decision.independent(h, b)) for n, (b, h) in enumerate(sides)}
    other = family(swapped)
    for key, verdict in family(rows).items():
        assert other[key].verdict == MIRROR[verdict.verdict]


@settings(max_examples=100, derandomize=True)
@given(launch_values, launch_values, st.integers(0, 100_000).map(lambda parts: parts * 1e-6))
def test_a_slower_head_never_looks_better(
    base: list[float], head: list[float], slower: float
) -> None:
    before = family({"row": known(decision.independent(base, head))})["row"].verdict
    moved = [one + slower for one in head]
    after = family({"row": known(decision.independent(base, moved))})["row"].verdict
    if before == decision.REGRESSED:
        assert after == decision.REGRESSED
    if before != decision.IMPROVED:
        assert after != decision.IMPROVED


# --- The gate ---


def test_plan_spends_the_suites_error_over_its_cases() -> None:
    """0.005 / (0.05 x 40) = 0.0025, a fifth of it at each of five looks; the screen has three."""
    assert PLAN.confirm_alpha == pytest.approx(0.0025)
    assert PLAN.look_alpha == pytest.approx(0.0025 / 5)
    assert PLAN.screen_look_alpha == pytest.approx(0.05 / 3)
    assert PLAN.equivalence_alpha == pytest.approx(0.05 / 3)
    assert PLAN.cases * PLAN.screen_alpha * PLAN.confirm_alpha == pytest.approx(PLAN.suite_alpha)


@pytest.mark.parametrize("cases", [0, 1, 2])
def test_plan_of_few_cases_is_never_laxer_than_the_screen(cases: int) -> None:
    assert GatePlan(cases).confirm_alpha == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("log_mean", "deviation", "state", "wanted"),
    [
        (0.01, 0.001, decision.SLOWER, 0),
        (-0.01, 0.001, decision.FASTER, 0),
        (0.002, 1e-5, "", 0),  # certain, and below the least
        (-0.002, 1e-5, "", 0),
        (0.01, 0.01, decision.GO_ON, 8),  # p = 0.07, and 0.5 % would not have been seen
        (0.0, 0.004, decision.GO_ON, 8),
    ],
)
def test_first_look_of_the_screen(
    log_mean: float, deviation: float, state: str, wanted: int
) -> None:
    made = known(decision.screen(spread(log_mean, deviation, 4), DUET, PLAN))
    assert (made.state, made.wanted, made.look.base_launches) == (state, wanted, 4)


def test_screen_goes_on_until_it_would_have_seen_twice_the_least_change() -> None:
    """A standard error of 0.12 % after 4 launches cannot show 0.5 %; of 0.05 % after 16, it can."""
    noisy = mixed(0, 0.002, 16)
    looks = [known(decision.screen(noisy[:n], DUET, PLAN)) for n in (4, 7, 8, 15, 16)]
    assert [(one.state, one.wanted) for one in looks[:2]] == [(decision.GO_ON, 8)] * 2
    assert looks[-1].state == ""
    assert known(decision.screen(noisy, DUET.above_floor(0.01), PLAN)).look.base_launches == 4


def test_screen_ends_at_its_last_look() -> None:
    made = known(decision.screen(mixed(0, 0.05, 30), DUET, PLAN))
    assert (made.state, made.look.base_launches) == ("", 16)


def test_screen_flags_at_a_later_look() -> None:
    made = known(decision.screen(mixed(0.006, 0.006, 16), DUET, PLAN))
    assert (made.state, made.look.base_launches) == (decision.SLOWER, 16)


def test_a_screen_that_the_budget_ended_is_judged_by_its_launches() -> None:
    made = decision.decide_gate(spread(0, 0.004, 4), [], DUET, PLAN)
    assert made.verdict in (decision.EQUIVALENT, decision.INCONCLUSIVE)
    assert "8 launches were wanted" in "\n".join(made.path)


def test_launches_in_order_are_used_as_far_as_they_are_needed() -> None:
    calm = spread(0, 0.0003, 4)
    assert known(decision.decide_in_order(calm + [9.0] * 20, DUET, PLAN).difference).degrees == 3
    slower = decision.decide_in_order(SLOWER_FIRST + spread(0.03, 0.002, 8), DUET, PLAN)
    assert slower.verdict == decision.REGRESSED


@pytest.mark.parametrize(
    ("log_mean", "error", "launches", "result"),
    [
        (0.01, 0.001, 8, decision.CONFIRMED),
        (0.01, 0.004, 8, decision.GO_ON),  # p = 0.02: more than a look may spend
        (0.01, 0.004, 128, decision.CLEARED),  # still so at the last look
        (0.0, 0.0005, 8, decision.CLEARED),  # its interval ends below the least
        (-0.01, 0.001, 8, decision.CLEARED),
        (0.002, 0.0005, 8, decision.GO_ON),  # certain, and below the least, but it may be above
    ],
)
def test_confirm(log_mean: float, error: float, launches: int, result: str) -> None:
    slower = difference(log_mean, error, launches)
    faster = difference(-log_mean, error, launches)
    assert decision.confirm(slower, decision.SLOWER, DUET, PLAN) == result
    assert decision.confirm(faster, decision.FASTER, DUET, PLAN) == result


@pytest.mark.parametrize("first", [[], [0.02]])
def test_the_gate_says_nothing_from_one_launch(first: list[float]) -> None:
    made = decision.decide_gate(first, [], DUET, PLAN)
    assert made.verdict == decision.INCONCLUSIVE
    assert made.difference is None
    assert "fewer than two launches" in made.reason


def test_gate_without_a_change_ends_at_the_screen() -> None:
    made = decision.decide_gate(spread(0, 0.001, 4), [], DUET, PLAN)
    assert made.verdict == decision.EQUIVALENT
    assert known(made.difference).base_launches == 4
    assert "no change to confirm" in "\n".join(made.path)


def test_gate_with_noisy_launches_names_what_it_would_have_seen() -> None:
    made = decision.decide_gate(spread(0, 0.02, 4), [], DUET, PLAN)
    assert made.verdict == decision.INCONCLUSIVE
    assert made.smallest_effect is not None
    assert made.smallest_effect > 0.02
    assert "would have been seen" in made.reason


@pytest.mark.parametrize("sign", [1, -1])
def test_gate_confirms_on_fresh_launches_at_the_first_look(sign: int) -> None:
    first = [sign * one for one in SLOWER_FIRST]
    made = decision.decide_gate(first, spread(sign * 0.03, 0.002, 8), DUET, PLAN)
    assert made.verdict == (decision.REGRESSED if sign == 1 else decision.IMPROVED)
    assert known(made.difference).base_launches == 8
    assert made.path[-1] == f"Verdict: {made.verdict}"


def test_gate_confirms_at_a_later_look_what_the_first_left_open() -> None:
    second = spread(0.01, 0.008, 8) + spread(0.01, 0.001, 8)
    made = decision.decide_gate(SLOWER_FIRST, second, DUET, PLAN)
    assert made.verdict == decision.REGRESSED
    assert known(made.difference).base_launches == 16
    assert sum("look at" in line for line in made.path) == 2


def test_gate_clears_a_screen_that_fresh_launches_do_not_bear_out() -> None:
    made = decision.decide_gate(SLOWER_FIRST, spread(0, 0.001, 8), DUET, PLAN)
    assert made.verdict == decision.EQUIVALENT
    assert made.smallest_effect is not None


def test_gate_ends_at_the_last_look() -> None:
    second = spread(0.006, 0.04, 8) * 16
    made = decision.decide_gate(SLOWER_FIRST, second, DUET, PLAN)
    assert made.verdict == decision.INCONCLUSIVE
    assert known(made.difference).base_launches == 128
    assert made.smallest_effect is not None


@pytest.mark.parametrize("second", [[], [0.03] * 7, spread(0.006, 0.01, 9)])
def test_gate_with_a_look_outstanding_is_inconclusive(second: list[float]) -> None:
    made = decision.decide_gate(SLOWER_FIRST, second, DUET, PLAN)
    assert made.verdict == decision.INCONCLUSIVE
    assert "too few launches" in made.reason
    assert made.unconfirmed
    assert (made.difference is None) is (len(second) < 8)
    assert (made.smallest_effect is None) is (len(second) < 8)


def test_the_smallest_effect_of_what_is_left_open_is_that_of_its_last_look() -> None:
    made = decision.decide_gate(SLOWER_FIRST, spread(0.006, 0.01, 9), DUET, PLAN)
    look = known(made.difference)
    assert look.base_launches == 8
    assert made.smallest_effect == look.smallest_effect(PLAN.look_alpha, DUET.least)


def test_gate_does_not_decide_by_the_launches_that_raised_the_suspicion() -> None:
    made = decision.decide_gate([0.05] * 4, spread(-0.03, 0.002, 32), DUET, PLAN)
    assert made.verdict not in (decision.REGRESSED, decision.IMPROVED)


def test_huge_changes_are_verdicts_too() -> None:
    for log_ratio, verdict in ((5.0, decision.REGRESSED), (-5.0, decision.IMPROVED)):
        values = spread(log_ratio, 0.01, 4)
        made = decision.decide_gate(values, spread(log_ratio, 0.01, 8), DUET, PLAN)
        assert made.verdict == verdict
        assert known(made.difference).ratio.value == pytest.approx(math.exp(log_ratio))


def test_identical_launches_are_equivalent() -> None:
    assert decision.decide_gate([0.0] * 4, [], DUET, PLAN).verdict == decision.EQUIVALENT


@settings(max_examples=150, derandomize=True)
@given(launch_values, fresh_values)
def test_swapping_builds_mirrors_the_gate(first: list[float], second: list[float]) -> None:
    one = decision.decide_gate(first, second, DUET, PLAN)
    other = decision.decide_gate([-v for v in first], [-v for v in second], DUET, PLAN)
    assert other.verdict == MIRROR[one.verdict]


@settings(max_examples=150, derandomize=True)
@given(launch_values, fresh_values, st.integers(0, 100_000).map(lambda parts: parts * 1e-6))
def test_a_slower_head_never_passes_the_gate_better(
    first: list[float], second: list[float], slower: float
) -> None:
    before = decision.decide_gate(first, second, DUET, PLAN).verdict
    fresh = [one + slower for one in second]
    after = decision.decide_gate([one + slower for one in first], fresh, DUET, PLAN).verdict
    if before == decision.REGRESSED:
        assert after == decision.REGRESSED
    if before != decision.IMPROVED:
        assert after != decision.IMPROVED


@given(log_ratios, st.floats(0, 0.02))
def test_percent_reads_as_written(log_mean: float, error: float) -> None:
    one = difference(log_mean, max(error, decision.SMALLEST_ERROR))
    line = decision.describe(one, steps.PAIRED)
    assert line.startswith(f"Paired launches: 8; change {decision.percent(math.expm1(log_mean))}")


def test_describe_names_both_sides_where_they_differ() -> None:
    line = decision.describe(Difference(0.01, 0.001, 5.0, 3, 4), steps.INDEPENDENT)
    assert line.startswith("Independent launches: 3 against 4;")
    assert decision.percent(0.00123) == "0.123 %"
    assert decision.at_least(0.00123) == "0.123 % or more"
    assert decision.at_least(1e6) == "more than 1000 %", "and not 1e+08 %"
