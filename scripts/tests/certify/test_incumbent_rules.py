"""The rules of other tools on samples with known answers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats as scipy_stats

from gpulift.certify import incumbent_rules
from gpulift.certify.incumbent_rules import NO_CHANGE, Launch, Rule, Sample
from gpulift.records.parse import read_record
from gpulift.verdicts.decision import DUET, IMPROVED, REGRESSED, GatePlan
from tests.sample import arm, launches, skipped_arm

NINE = np.linspace(1.0, 1.001, 9)


def sample(times: object, clock_hz: float | None = 2e9) -> Sample:
    seconds = np.asarray(times, dtype=np.float64)
    return Sample(seconds, None if clock_hz is None else seconds * clock_hz)


@pytest.mark.parametrize("rule", incumbent_rules.RULES.values())
@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.0, NO_CHANGE), (1.2, REGRESSED), (1 / 1.2, IMPROVED)]
)
def test_every_rule_sees_20_percent_without_noise(rule: Rule, factor: float, verdict: str) -> None:
    assert rule(sample(NINE), sample(factor * NINE)) == verdict


@pytest.mark.parametrize(("shift", "verdict"), [(0.0003, NO_CHANGE), (0.0006, REGRESSED)])
def test_u_test_is_scipys_at_5_percent(shift: float, verdict: str) -> None:
    head = NINE + shift
    p_value = float(scipy_stats.mannwhitneyu(NINE, head, alternative="two-sided").pvalue)
    assert (p_value < 0.05) is (verdict != NO_CHANGE)
    assert incumbent_rules.u_test(sample(NINE), sample(head)) == verdict


def test_u_test_needs_no_size_of_change() -> None:
    assert incumbent_rules.u_test(sample(NINE), sample(1.0011 * NINE)) == REGRESSED


def test_u_test_without_a_direction_says_nothing() -> None:
    """Two modes on one side about the other's single value: p is small, medians agree."""
    base = [1.0] * 20
    head = [1.0] * 11 + [1.2] * 9
    assert scipy_stats.mannwhitneyu(base, head).pvalue < 0.05
    assert incumbent_rules.u_test(sample(base), sample(head)) == NO_CHANGE


@pytest.mark.parametrize(
    ("factor", "verdict"),
    [(1.069, NO_CHANGE), (1.071, REGRESSED), (0.931, NO_CHANGE), (0.929, IMPROVED)],
)
def test_mean_change_at_7_percent(factor: float, verdict: str) -> None:
    assert incumbent_rules.mean_change(sample([1.0]), sample([factor])) == verdict


def test_clear_gap_runs_from_the_minimum_to_the_third_quartile() -> None:
    """Base [1.00, 1.03] with one value beyond, rank (75 * 4 + 50) // 100 = 3 of 0..4."""
    base = [1.03, 1.00, 1.01, 1.02, 1.50]
    just_under, just_over = ([1.03 * by] * 5 for by in (1.0049, 1.0051))
    assert incumbent_rules.clear_gap(sample(base), sample(just_under)) == NO_CHANGE
    assert incumbent_rules.clear_gap(sample(base), sample(just_over)) == REGRESSED
    assert incumbent_rules.clear_gap(sample(just_over), sample(base)) == IMPROVED


def test_clear_gap_must_show_in_cycles_too() -> None:
    base, slow = sample(NINE), 1.2 * NINE
    slower_clock = Sample(slow, slow * 2e9 / 1.2)
    assert incumbent_rules.clear_gap(base, slower_clock) == NO_CHANGE
    assert incumbent_rules.clear_gap(base, sample(slow, clock_hz=None)) == NO_CHANGE
    assert incumbent_rules.clear_gap(sample(NINE, clock_hz=None), sample(slow)) == NO_CHANGE


def made_launches(count: int, head: float = 1.0, **how: float) -> list[Launch]:
    arms = [arm("base:a", 1e-3, **how), arm("head:a", head * 1e-3, **how)]
    raw = launches(count, "transfer/pinned_copy", {"bytes": 4096}, arms)
    return incumbent_rules.launches_of([read_record(one) for one in reversed(raw)])


def test_launches_of_records_are_in_order_and_hold_both_sides() -> None:
    made = made_launches(3, head=1.01)
    assert len(made) == 3
    assert all(one.base.times.size == one.head.times.size == 16 for one in made)
    assert all(one.base.cycles is not None for one in made)
    assert [one.value for one in made] == pytest.approx([0.01] * 3, abs=0.006)


def test_launches_without_both_sides_are_left_out() -> None:
    arms = [arm("base:a", 1e-3), skipped_arm("head:a", "no library")]
    raw = launches(2, "transfer/pinned_copy", {"bytes": 4096}, arms)
    assert incumbent_rules.launches_of([read_record(one) for one in raw]) == []


def test_tally_counts_trials_by_what_a_repetition_is() -> None:
    made = incumbent_rules.tally([made_launches(20)] * 2, GatePlan(2), DUET)
    trials = {(one.rule, one.repetition): one.trials for one in made}
    for rule in incumbent_rules.RULES:
        assert trials[rule, "one launch"] == 20
        assert trials[rule, "9 launches"] == 2
    assert trials["gpulift gate", "duet launches"] == 2
    assert len(made) == 2 * len(incumbent_rules.RULES) + 1


def test_tally_of_a_planted_change() -> None:
    quiet = {"noise": 1e-4, "launch_noise": 1e-4}
    made = incumbent_rules.tally([made_launches(20, 1.02, **quiet)], GatePlan(1), DUET)
    found = {one.rule: one for one in made}
    assert found["gpulift gate"].regressed == 1
    assert found["compare.py: U test, p < 0.05"].regressed == 1
    assert found["one mean against another, 7 %"].regressed == 0
    assert all(one.improved == 0 for one in made)


def test_tally_of_nothing() -> None:
    made = incumbent_rules.tally([], GatePlan(1), DUET)
    assert all((one.trials, one.regressed, one.improved) == (0, 0, 0) for one in made)
