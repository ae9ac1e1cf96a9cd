"""From records with known truth to the verdict on a claim."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpulift.analysis import ledger
from gpulift.analysis.choice import Choice
from gpulift.analysis.claim_metrics import METRICS
from gpulift.analysis.claim_rules import (
    CONFIRMED,
    CORRECTED,
    INSIDE,
    NOT_CONFIRMED,
    OUTSIDE,
    UNDECIDED,
    UNDER_CONDITIONS,
)
from gpulift.analysis.claims import (
    BY_DOCUMENTATION,
    NOT_DECIDED,
    NOT_MEASURED,
    NOT_TESTABLE,
    REFUTED,
    Judgement,
    conditions,
    judge,
    measured,
)
from gpulift.analysis.errata import Erratum
from gpulift.analysis.ledger import Claim, Experiment, Rule, Source
from gpulift.analysis.today import Declared, Today
from gpulift.records.model import Record
from gpulift.records.parse import read_record
from tests.sample import Json, arm, gpu_context, launches, record, skipped_arm, unmeasured

SOURCE = Source("Article", "Somebody", "2025", "")
AT_LEAST_2 = Rule("at_least", low=2.0)
MIB = 1 << 20


def claim(rule: Rule = AT_LEAST_2, metric: str = "speedup", cases: str = "") -> Claim:
    """A claim on arm `new` against `old` of the technique a/b."""
    return Claim("one", "It is.", SOURCE, Experiment("a/b", metric, rule, cases, "old", "new"))


def records(*made: list[Json]) -> list[Record]:
    return [read_record(one) for group in made for one in group]


def case(n: int, gain: float, count: int = 3, **how: Any) -> list[Json]:
    """Launches of a case whose true speedup is `gain`."""
    arm_how = {"launch_noise": how.pop("launch_noise", 1e-4), "noise": 1e-4}
    arms = [arm("old", gain * 1e-3, **arm_how), arm("new", 1e-3, **arm_how)]
    return launches(count, "a/b", {"n": n}, arms, **how)


def verdict(one: Claim, *made: list[Json]) -> Judgement:
    (found,) = judge([one], records(*made))
    return found


NOISY, EXACT = 0.2, 1e-4  # between launches
LOSS, UP_TO = Rule("at_most", high=0.8), Rule("up_to", low=2.0)
EITHER, APART = Rule("both_ways", low=1.01), Rule("faster_or_slower_by", low=1.1)


@pytest.mark.parametrize(
    ("rule", "gains", "noise", "expected", "reason"),
    [
        (AT_LEAST_2, (2.5, 3.0), EXACT, CONFIRMED, "at least 2× in every case"),
        (AT_LEAST_2, (0.5, 2.5), EXACT, UNDER_CONDITIONS, "at least 2× in 1 of 2 cases"),
        (AT_LEAST_2, (1.2, 1.5), EXACT, CORRECTED, "not at least 2× in any case"),
        (AT_LEAST_2, (1.0,), EXACT, NOT_CONFIRMED, "no case shows a gain"),
        (AT_LEAST_2, (0.5,), EXACT, NOT_CONFIRMED, "no case shows a gain"),
        (AT_LEAST_2, (2.0,), NOISY, NOT_CONFIRMED, "undecided in 1 of 1 cases"),
        (Rule("between", 4.0, 6.0), (8.0,), EXACT, CORRECTED, "not between 4× and 6× in any case"),
        (LOSS, (0.5,), EXACT, CONFIRMED, "at most 0.8× in every case"),
        (LOSS, (0.9,), EXACT, CORRECTED, "not at most 0.8× in any case"),
        (LOSS, (1.2,), EXACT, NOT_CONFIRMED, "no case shows a loss"),
        (UP_TO, (0.5, 2.5), EXACT, CONFIRMED, "up to 2×: reached, and exceeded: 2.5×"),
        (UP_TO, (0.5, 2.05), EXACT, CONFIRMED, "up to 2×: reached"),
        (UP_TO, (1.95,), EXACT, CONFIRMED, "up to 2×: reached"),  # within 5 % is the same
        (UP_TO, (1.85,), EXACT, CORRECTED, "up to 1.85×, not up to 2×"),
        (UP_TO, (0.5, 1.5), EXACT, CORRECTED, "up to 1.5×, not up to 2×"),
        (UP_TO, (0.5, 0.9), EXACT, NOT_CONFIRMED, "no case shows a gain"),
        (EITHER, (1.4, 0.8, 1.0), EXACT, CONFIRMED, "faster in 1 and slower in 1 of 3 cases"),
        (EITHER, (1.4, 1.2), EXACT, NOT_CONFIRMED, "faster in 2 and slower in 0 of 2 cases"),
        (EITHER, (0.8,), EXACT, NOT_CONFIRMED, "faster in 0 and slower in 1 of 1 cases"),
        (APART, (1.5,), EXACT, CONFIRMED, "faster or slower by 1.1× in every case"),
        (APART, (0.5,), EXACT, CONFIRMED, "faster or slower by 1.1× in every case"),
        (APART, (1.5, 1.05), EXACT, UNDER_CONDITIONS, "faster or slower by 1.1× in 1 of 2 cases"),
        (APART, (1.05,), EXACT, CORRECTED, "not faster or slower by 1.1× in any case"),
        (APART, (0.95,), EXACT, CORRECTED, "not faster or slower by 1.1× in any case"),
        (APART, (1.1,), NOISY, NOT_CONFIRMED, "undecided in 1 of 1 cases"),
    ],
)
def test_gains_of_cases_against_a_rule(
    rule: Rule, gains: tuple[float, ...], noise: float, expected: str, reason: str
) -> None:
    made = (case(n, gain, launch_noise=noise) for n, gain in enumerate(gains))
    found = verdict(claim(rule), *made)
    assert (found.verdict, found.reason) == (expected, reason)
    assert found.range == pytest.approx((min(gains), max(gains)), rel=10 * noise)
    assert len(found.records) == 3 * len(gains)


def test_a_noisy_case_beside_a_decided_one_is_undecided() -> None:
    noisy = case(1, 2.0, launch_noise=NOISY)
    found = verdict(claim(), noisy, case(2, 1.2))
    assert [one.place for one in found.cases] == [UNDECIDED, OUTSIDE]
    assert (found.verdict, found.reason) == (
        NOT_CONFIRMED,
        "undecided in 1 of 2 cases, not so in the others",
    )
    found = verdict(claim(UP_TO), noisy, case(2, 1.5))
    assert found.verdict == NOT_CONFIRMED
    assert found.reason.endswith("more launches are needed")


def test_cases_stand_in_the_order_of_their_numbers_and_only_those_that_are_named_count() -> None:
    made = case(10, 0.5), case(9, 2.5)
    cases = verdict(claim(), *made).cases
    assert [(one.case_id, one.place) for one in cases] == [("n:9", INSIDE), ("n:10", OUTSIDE)]
    found = verdict(claim(cases="^n:9$"), *made, case(99, 0.5))
    assert (found.verdict, [one.case_id for one in found.cases]) == (CONFIRMED, ["n:9"])


def about(**known: Any) -> Claim:
    """A claim without a test."""
    return Claim("one", "It is.", SOURCE, None, **known)


def of_gpu(gpu: str) -> Claim:
    return Claim("one", "It is.", SOURCE, replace(TESTED, gpu=gpu))


TESTED = Experiment("a/b", "speedup", AT_LEAST_2, "", "old", "new")
MEASURED = case(1, 2.5)
FAILED = [unmeasured("a/b", {"n": 1}, "failed", "arm new: error 0.3")]
SKIPPED = [unmeasured("a/b", {"n": 2}, "skipped", "out of memory")]
LACKING = [arm("old", 1e-3), arm("third", 1e-3), skipped_arm("new", "no FP8 here")]
ANOTHER = launches(3, "a/c", {"n": 1}, [arm("old", 3e-3), arm("new", 1e-3)])
RUN = "./gpulift run a/b"


@pytest.mark.parametrize(
    ("one", "made", "expected", "reason", "command"),
    [
        (claim(), [], NOT_MEASURED, "no measured records of a/b", RUN),
        (claim(), [ANOTHER], NOT_MEASURED, "no measured records of a/b", RUN),
        (claim(), [FAILED], NOT_MEASURED, "no measured records of a/b", RUN),
        (claim(), [SKIPPED, FAILED], NOT_MEASURED, "no measured records of a/b", RUN),
        (claim(), [SKIPPED], NOT_TESTABLE, "out of memory", ""),
        (claim(), [launches(3, "a/b", {"n": 1}, LACKING)], NOT_TESTABLE, "no FP8 here", ""),
        (claim(), [SKIPPED, MEASURED], CONFIRMED, "at least 2× in every case", ""),
        (about(not_testable="a survey"), [], NOT_TESTABLE, "a survey", ""),
        (about(confirmed_by="its manual"), [MEASURED], BY_DOCUMENTATION, "its manual", ""),
        (about(refuted_by="its manual"), [MEASURED], REFUTED, "its manual", ""),
        (of_gpu("h200"), [MEASURED], CONFIRMED, "at least 2× in every case", ""),
        (of_gpu("a100"), [MEASURED], NOT_TESTABLE, "the statement is about another GPU, a100", ""),
        (of_gpu("a100"), [], NOT_MEASURED, "no measured records of a/b", RUN),
    ],
)
def test_what_is_there_decides_and_what_lacks_says_which_command_makes_it(
    one: Claim, made: list[list[Json]], expected: str, reason: str, command: str
) -> None:
    found = verdict(one, *made)
    assert (found.verdict, found.reason, found.command) == (expected, reason, command)


PEAKS = ({"peak_reserved_bytes": 3e9, "peak_allocated_bytes": 2e9}, {"peak_reserved_bytes": 6e9})
COST: Json = {"cost": {"items": 1.0}}


@pytest.mark.parametrize(
    ("metric", "old", "new", "gain"),
    [
        ("memory", {"memory": 40 * MIB}, {"memory": 20 * MIB}, 2.0),
        ("rate", COST, {"cost": {"items": 8.0}}, 8.0),
        (
            "cpu_time",
            {"clock": "host", "cpu_cores": 1.0},
            {"clock": "host", "cpu_cores": 4.0},
            0.25,
        ),
        (
            "fragmentation",
            {"metrics": PEAKS[0]},
            {"metrics": PEAKS[1] | {"peak_allocated_bytes": 5e9}},
            1.25,
        ),
        ("fragmentation", {"metrics": PEAKS[0]}, {"metrics": PEAKS[1]}, None),
        *(
            (metric, {"metrics": {noted: 0.6}}, {"metrics": {noted: 0.8}}, 0.75)
            for metric, noted in (
                ("held_out_loss", "held_out_loss"),
                ("checkpoint_bytes", "checkpoint_bytes"),
                ("restore_time", "restore_s"),
                ("training_slowdown", "training_slowdown_ratio"),
            )
        ),
        ("held_out_loss", {}, {}, None),
    ],
)
def test_each_metric_is_the_baselines_over_the_arms(
    metric: str, old: Json, new: Json, gain: float | None
) -> None:
    arms = [
        arm(name, 1e-3, noise=1e-4, launch_noise=1e-4, **of)
        for name, of in zip(("old", "new"), (old, new), strict=True)
    ]
    found = verdict(claim(metric=metric), launches(3, "a/b", {"n": 1}, arms))
    if gain is None:
        assert (found.verdict, found.reason) == (NOT_MEASURED, f"the records give no {metric}")
    else:
        assert found.range == pytest.approx((gain, gain), rel=0.05)


def test_a_case_of_one_launch_decides_nothing_but_is_told() -> None:
    found = verdict(claim(), case(1, 2.5), case(2, 0.5, count=1))
    assert found.verdict == CONFIRMED
    assert [one.case_id for one in found.cases] == ["n:1"]
    (barred,) = found.barred
    assert (barred.case.case_id, barred.why) == ("n:2", "one launch")
    assert barred.case.gain.value == pytest.approx(0.5, rel=1e-3)
    assert barred.case.place == OUTSIDE
    words = measured(found)
    assert words.endswith("at least 2× in every case; one launch, which decides nothing: n 2 0.5×")


def test_the_range_over_cases_is_of_gains_and_not_of_their_intervals() -> None:
    found = verdict(claim(), case(1, 2.5, launch_noise=0.1), case(2, 3.0))
    assert found.cases[0].high - found.cases[0].low > 0.1
    assert found.range == (found.cases[0].gain.value, found.cases[1].gain.value)


@pytest.mark.parametrize("metric", ["speedup", "memory", "rate", "batch"])
def test_one_launch_decides_nothing(metric: str) -> None:
    found = verdict(claim(metric=metric), case(1, 2.5, count=1), case(2, 2.5, count=1))
    assert (found.verdict, found.cases) == (NOT_DECIDED, ())
    assert "; one launch, which decides nothing: n 1 " in found.reason


def test_what_one_launch_a_case_points_to_is_told_with_its_records() -> None:
    found = verdict(claim(), case(1, 2.5, count=1), case(2, 1.9, count=1, launch_noise=0.0))
    assert found.verdict == NOT_DECIDED
    assert measured(found) == (
        "●○○ one launch a case points to confirmed under conditions: at least 2× in 1 of 2 cases; "
        "one launch, which decides nothing: n 1 2.5×, n 2 1.9×"
    )
    assert len(found.records) == 2
    assert conditions(found).startswith("one card, one run, one launch a case, bound by ")
    assert conditions(found).endswith(", ./gpulift run '^a/b/n:1/(old|new)$' --launches 3")


def waiting(gain: float, **case: Any) -> list[Json]:
    """A case of GPU work in which both arms wait for the host."""
    arms = [
        arm("old", 1e-6, cost={"items": 1.0}, memory=1 << 21, held=False),
        arm("new", 1e-6 / gain, cost={"items": 1.0}, memory=1 << 20, held=False),
    ]
    return launches(3, "a/b", case, arms)


def test_a_case_that_waits_for_the_host_decides_nothing_about_times() -> None:
    found = verdict(claim(), waiting(2.5, n=1))
    assert (found.verdict, found.cases) == (NOT_DECIDED, ())
    assert found.reason == "bound by the host, which decides nothing: n 1 2.5×"
    of_memory = verdict(claim(metric="memory"), waiting(2.5, n=1))
    assert [one.grade.bound for one in of_memory.cases] == ["host 2.50 / host 1.00"]


def test_a_baseline_that_waits_by_what_it_is_may_be_asked_about() -> None:
    test = Experiment("a/b", "speedup", AT_LEAST_2, "", "old", "new", host=True)
    one = Claim("one", "It is.", SOURCE, test)
    arms = [arm("old", 1e-6, held=False), arm("new", 4e-7)]
    baseline_waits = launches(3, "a/b", {"n": 1}, arms)
    assert [each.why for each in verdict(claim(), baseline_waits).barred] == ["bound by the host"]
    assert verdict(one, baseline_waits).verdict == CONFIRMED
    assert [each.why for each in verdict(one, waiting(2.5, n=1)).barred] == ["bound by the host"]
    error = Erratum("x", "x", "x", "x", runs=("*",), leads=False)
    (found,) = judge([one], records(baseline_waits), Choice(errata=(error,)))
    assert [each.why for each in found.barred] == ["known error"]


def test_what_an_erratum_withholds_decides_nothing_and_newer_records_do() -> None:
    older = built(case(1, 2.5), "aaa1111", 1)
    newer = built(case(1, 3.0), "bbb2222", 2)
    error = Erratum("x", "x", "x", "x", runs=("*",), before=newer[0]["started_at"], leads=False)
    known = Choice(errata=(error,))
    (found,) = judge([claim()], in_runs(older), known)
    assert (found.verdict, [one.why for one in found.barred]) == (NOT_MEASURED, ["known error"])
    assert measured(found) == "known error, which decides nothing: n 1"  # and not how much
    assert found.records == ()
    (found,) = judge([claim()], in_runs(older, newer), known)
    assert [one.gain.value for one in found.cases] == pytest.approx([3.0], rel=1e-2)


def test_an_erratum_of_times_alone_withholds_no_memory() -> None:
    arms = [arm("old", 4e-3, memory=40 * MIB), arm("new", 1e-3, memory=10 * MIB)]
    made = records(launches(3, "a/b", {"n": 1}, arms))
    error = Erratum("x", "x", "x", "x", runs=("*",), leads=False)
    of_times = replace(error, memory_holds=True)
    for metric, each, decided in (
        ("memory", error, False),
        ("memory", of_times, True),
        ("speedup", of_times, False),
    ):
        (found,) = judge([claim(metric=metric)], made, Choice(errata=(each,)))
        assert (found.verdict == CONFIRMED) == decided


def test_a_claim_is_as_well_supported_as_its_worst_case() -> None:
    one_card = built(case(1, 2.5), "aaa1111", 1, "card1")
    two_cards = [
        one for card in ("card1", "card2") for one in built(case(2, 2.5), "aaa1111", 2, card)
    ]
    (found,) = judge([claim()], in_runs(two_cards))
    assert measured(found).startswith("●●● speedup 2.5")
    (found,) = judge([claim()], in_runs(one_card, two_cards))
    assert found.grade is not None
    assert found.grade.marks == "●●○"
    assert measured(found).startswith("●●○ speedup 2.5")


def test_what_is_gone_decides_nothing_and_an_older_text_says_when() -> None:
    declared = Declared(("old", "new"), {"n": (1,)}, "another")
    known = Choice(Today({"a/b": declared}))
    (found,) = judge([claim()], records(case(1, 2.5), case(2, 0.5)), known)
    assert (found.verdict, [one.case_id for one in found.cases]) == (CONFIRMED, ["n:1"])
    assert ", before (2026-11-21), " in conditions(found)
    (found,) = judge([claim()], records(case(2, 0.5)), known)
    assert (found.verdict, found.reason) == (NOT_MEASURED, "what records have of a/b is gone")
    known = Choice(Today({"a/b": replace(declared, arms=("old", "newer"))}))
    assert judge([claim()], records(case(1, 2.5)), known)[0].verdict == NOT_MEASURED


def test_a_run_beside_others_is_told() -> None:
    made = records(case(1, 2.5))
    (found,) = judge([claim()], made, neighbours={made[0].id: 3})
    assert "beside runs on 3 other cards" in conditions(found)


def test_a_control_is_no_baseline_of_a_claim() -> None:
    (found,) = verdict(claim(), case(1, 2.5, controls=["old"])).barred
    assert found.why == "against a control"


def about_a_control() -> Claim:
    test = Experiment("a/b", "speedup", AT_LEAST_2, "", "old", "new", control=True)
    return Claim("one", "It is.", SOURCE, test)


def test_a_claim_that_asks_about_a_control_is_decided_and_says_so() -> None:
    found = verdict(about_a_control(), case(1, 2.5, controls=["old"]))
    assert found.verdict == CONFIRMED
    assert conditions(found).startswith("over old, a control, as the article has it, one card")
    waits = [one | {"controls": ["old"]} for one in waiting(2.5, n=1)]
    assert [one.why for one in verdict(about_a_control(), waits).barred] == ["bound by the host"]


def test_a_control_that_an_earlier_record_does_not_name_may_be_asked_about_too() -> None:
    arms = [arm("explicit", 3e-3), arm("flash", 1e-3)]
    made = [one | {"schema": "1.9"} for one in launches(3, "attention/sdpa", {"n": 1}, arms)]
    test = Experiment("attention/sdpa", "speedup", AT_LEAST_2, "", "explicit", "flash")
    one = Claim("one", "It is.", SOURCE, test)
    assert [each.why for each in verdict(one, made).barred] == ["against a control"]
    one = replace(one, test=replace(test, control=True))
    assert verdict(one, made).verdict == CONFIRMED


@pytest.mark.parametrize(("arms", "counts"), [("^old$", True), ("^new$", False), ("", False)])
def test_what_withholds_a_control_alone_is_nothing_against_a_claim_about_it(
    arms: str, counts: bool
) -> None:
    error = Erratum("x", "x", "x", "x", runs=("*",), arms=arms, leads=False)
    (found,) = judge([about_a_control()], records(case(1, 2.5)), Choice(errata=(error,)))
    assert (found.verdict == CONFIRMED) == counts
    (found,) = judge([claim()], records(case(1, 2.5)), Choice(errata=(error,)))
    assert found.verdict == NOT_MEASURED


def test_memory_of_host_arms_is_the_hosts_and_is_no_ratio_to_nothing() -> None:
    made = launches(2, "a/b", {"n": 1}, [arm("old", 1e-3), arm("new", 1e-3)])
    for one in made:
        for index, peak in enumerate((60 * MIB, 20 * MIB)):
            one["arms"][index] |= {"peak_device_bytes": 0, "peak_host_bytes": peak}
    assert verdict(claim(metric="memory"), made).range == pytest.approx((3.0, 3.0))
    for one in made:
        one["arms"][0]["peak_device_bytes"] = MIB
    found = verdict(claim(metric="memory"), made)
    assert found.verdict == NOT_MEASURED
    assert found.reason == "the records give no memory"


def test_batch_is_how_many_more_items_a_step_does() -> None:
    arms = [arm("old", 1e-3, cost={"items": 9.0}), arm("new", 2e-3, cost={"items": 18.0})]
    made = launches(2, "a/b", {"n": 1}, arms)
    assert verdict(claim(Rule("up_to", 2.0), "batch"), made).verdict == CONFIRMED
    assert verdict(claim(Rule("up_to", 3.0), "batch"), made).range == (2.0, 2.0)
    assert verdict(claim(Rule("up_to", 2.0), "batch"), made[:1]).verdict == NOT_DECIDED


def with_facts(made: list[Json], *facts: dict[str, float]) -> list[Json]:
    for one in made:
        for each, found in zip(one["arms"], facts, strict=True):
            each["metrics"] = found
    return made


def test_a_cold_start_is_held_against_a_step_of_the_baseline() -> None:
    slow = Rule("at_most", high=0.3)
    made = with_facts(case(1, 2.0), {}, {"cold_start_s": 4.0})
    found = verdict(claim(slow, "cold_start"), made)
    assert found.verdict == CONFIRMED
    assert found.cases[0].gain.value == pytest.approx(2e-3 / 4, rel=1e-3)
    quick = with_facts(case(1, 2.0), {}, {"cold_start_s": 3e-3})
    assert verdict(claim(slow, "cold_start"), quick).verdict == CORRECTED
    assert verdict(claim(slow, "cold_start"), case(1, 2.0)).verdict == NOT_MEASURED


def test_every_metric_of_the_ledger_can_be_judged() -> None:
    assert tuple(METRICS) == ledger.METRICS


def built(made: list[Json], commit: str, hour: int, card: str = "1a2b3c4d") -> list[Json]:
    context = gpu_context(build={"commit": commit}, gpu={"card": card})
    for index, one in enumerate(made):
        one["context"] = context
        one["started_at"] = f"2026-11-21T{hour:02d}:00:{index:02d}Z"
    return made


def in_runs(*made: list[Json]) -> list[Record]:
    """Each in a folder of its own."""
    return [
        replace(read_record(one), file=Path(f"run-{number}/a.b.jsonl"))
        for number, group in enumerate(made)
        for one in group
    ]


def test_three_runs_of_any_build_give_the_median_over_runs() -> None:
    older = built(case(1, 2.2, count=8), "aaa1111", 1)
    first = built(case(1, 2.4), "bbb2222", 2, "card1")
    second = built(case(1, 2.6, seed=2), "bbb2222", 3, "card2")
    (found,) = judge([claim()], in_runs(second, older, first))
    (one,) = found.cases
    assert one.cards == ("1a2b3c4d", "card1", "card2")
    assert (one.gain.launches, one.figure.basis) == (14, "3 runs, 3 cards")
    assert one.gain.value == pytest.approx(2.4, rel=1e-3)
    assert one.low < 2.2 < 2.6 < one.high
    assert found.of_model
    assert found.verdict == NOT_CONFIRMED


def test_two_runs_reach_from_the_lowest_to_the_highest_end() -> None:
    (found,) = judge([claim()], in_runs(case(1, 2.4), case(1, 2.6, seed=2)))
    (one,) = found.cases
    assert one.figure.basis == "two runs"
    assert (one.low, one.high) == pytest.approx((2.4, 2.6), rel=1e-2)
    assert not found.of_model


def test_single_launches_of_two_runs_are_not_put_together_and_of_three_they_are() -> None:
    made = [built(case(1, 2.4, count=1), commit, 1) for commit in ("aaa1111", "bbb2222", "ccc3333")]
    (found,) = judge([claim()], in_runs(*made[:2]))
    assert found.verdict == NOT_DECIDED
    assert found.reason.endswith("; one launch, which decides nothing: n 1 2.4×")
    (found,) = judge([claim()], in_runs(*made))
    assert found.verdict == CONFIRMED


def test_launches_without_the_arm_and_records_of_duets_do_not_count() -> None:
    lonely = [record("a/b", {"n": 1}, [arm("old", 1e-3)], launch) for launch in (3, 4, 5)]
    found = verdict(claim(), case(1, 2.5), lonely)
    assert found.cases[0].gain.launches == 3
    duets = case(2, 2.5, kind="duet", arm="new")
    assert verdict(claim(), duets).verdict == NOT_MEASURED
