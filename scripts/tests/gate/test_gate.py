"""The gate's verdicts and controls as a function of evidence, without anything measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from gpulift.gate.evidence import ALTERNATING, TWO_IN_ONE, Evidence, Launch, Row, Series, Setup
from gpulift.gate.judge import (
    LESS_SHARP,
    GateResult,
    choose_null_rows,
    control_rows,
    describe,
    judge,
    next_look,
    next_screen,
    of_unknown_side,
    planted_size,
)
from gpulift.ground.errors import INCONCLUSIVE, INSTRUMENT_BROKEN
from gpulift.verdicts.decision import DECISION_METHOD, GatePlan, Verdict, percent

ROW = Row("precision/matmul", "n:512", "bf16")
OTHER = Row("launch/cuda_graph", "n:1", "graph")
CLEAN = (1e-4, -1e-4, 2e-4, -2e-4)
SLOWER = (5.0e-3, 5.1e-3, 4.9e-3, 5.0e-3)
FASTER = tuple(-value for value in SLOWER)
PLANTED = (0.0100, 0.0101, 0.0099, 0.0100)
NOISY = (0.05, -0.05, 0.06, -0.06)
ERROR = Launch(None, "error", "the process that measured it ended with signal SIGSEGV")
SKIP = Launch(None, "skipped", "out of memory")


def launches(values: Sequence[float], planted: float | None = None) -> tuple[Launch, ...]:
    return tuple(Launch(value, planted=planted) for value in values)


def found(row: Row, values: Sequence[float] = PLANTED, said: float | None = 0.01) -> Series:
    """Of the planted control: these values in both stages, beside what records say was planted."""
    return Series({row: launches(values, said)}, {row: launches([*values, *values], said)})


def setup(*rows: Row) -> Setup:
    return Setup(
        method=DECISION_METHOD,
        mode=TWO_IN_ONE,
        base="base",
        head="head",
        machine="nvidia-h200",
        certificate="no certificate for this model",
        seed=1,
        rows=rows,
        null_rows=rows[:1],
        planted_size=0.01,
    )


def evidence(
    first: Mapping[Row, Sequence[Launch]],
    second: Mapping[Row, Sequence[Launch]] | None = None,
    **more: Series,
) -> Evidence:
    """Good controls in the first row unless said otherwise."""
    series = Series(
        {row: tuple(held) for row, held in first.items()},
        {row: tuple(held) for row, held in (second or {}).items()},
    )
    row = next(iter(first))
    null = more.get("null", Series({row: launches(CLEAN)}))
    return Evidence(setup(*first), series, null, more.get("planted", found(row)))


def only(result: GateResult, row: Row = ROW) -> Verdict:
    (found,) = [one.verdict for one in result.rows if one.row == row]
    return found


def test_equal_builds_are_clean() -> None:
    result = judge(evidence({ROW: launches(CLEAN)}))
    assert only(result).verdict == "equivalent"
    assert [control.passed for control in result.controls] == [True, True, True]
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("first", "second", "verdict", "code"),
    [
        (launches(SLOWER), (), "inconclusive", INCONCLUSIVE),  # it needs fresh ones
        (launches(SLOWER), launches(SLOWER * 2), "regressed", 1),
        (launches(SLOWER), launches(CLEAN * 2), "equivalent", 0),
        (launches(FASTER), launches(FASTER * 2), "improved", 0),
        (launches(SLOWER), (*launches(SLOWER), ERROR), "error", 1),
    ],
)
def test_what_fresh_launches_make_of_the_screen(
    first: Sequence[Launch], second: Sequence[Launch], verdict: str, code: int
) -> None:
    result = judge(evidence({ROW: first}, {ROW: second}))
    assert (only(result).verdict, result.exit_code) == (verdict, code)


def test_a_crash_is_an_error_and_the_rest_is_judged() -> None:
    result = judge(evidence({OTHER: launches(CLEAN), ROW: [ERROR]}))
    assert only(result).verdict == "error"
    assert "SIGSEGV" in only(result).reason
    assert only(result, OTHER).verdict == "equivalent"
    assert result.plan.cases == 1
    assert result.exit_code == 1


def test_below_its_floor_a_row_is_never_called_changed() -> None:
    slower = evidence({ROW: launches(SLOWER)}, {ROW: launches(SLOWER * 2)})
    floored = replace(slower, setup=replace(slower.setup, floors={ROW.id: 0.02}))
    assert only(judge(slower)).verdict == "regressed"
    assert only(judge(floored)).verdict == "equivalent"  # within 1 %


def test_skips_are_results_but_a_part_of_the_launches_proves_nothing() -> None:
    assert only(judge(evidence({ROW: [SKIP] * 4}))).verdict == "skipped"
    partly = only(judge(evidence({ROW: [*launches(CLEAN[:3]), SKIP]})))
    assert partly.verdict == "inconclusive"
    assert "1 of 4 launches were skipped: out of memory" in partly.reason


def test_nothing_that_ran_is_its_own_exit_code() -> None:
    unmeasurable = replace(setup(ROW), unmeasurable={ROW.id: "no GPU"}, null_rows=())
    result = judge(Evidence(unmeasurable))
    assert only(result).reason == "no GPU"
    assert result.exit_code == 77


def test_more_than_a_tenth_inconclusive_is_exit_5() -> None:
    rows = [Row("precision/matmul", f"n:{n}", "bf16") for n in range(10)]
    values: dict[Row, Sequence[Launch]] = {row: launches(CLEAN) for row in rows}
    values[rows[9]] = launches(NOISY)
    assert judge(evidence(values)).exit_code == 0
    values[rows[8]] = launches(NOISY)
    result = judge(evidence(values))
    assert result.counts["inconclusive"] == 2
    assert result.exit_code == INCONCLUSIVE


def control(result: GateResult, name: str) -> str:
    """What a failed control says."""
    (found,) = [one for one in result.controls if one.name == name]
    assert not found.passed
    assert result.exit_code == INSTRUMENT_BROKEN
    return found.said


@pytest.mark.parametrize(
    ("null", "words"),
    [
        (Series({ROW: launches(SLOWER)}), "not decided"),
        (Series({ROW: (ERROR,)}), "SIGSEGV"),
        (Series({ROW: launches(CLEAN[:3])}), "only 3 of 4 launches"),
        (Series(), "only 0 of 4 launches"),
        (Series({ROW: (*launches(CLEAN[:3]), SKIP)}), "1 of 4 launches were skipped"),
        (Series({ROW: launches(SLOWER)}, {ROW: launches(SLOWER * 2)}), f"{ROW.id}: alarm: regress"),
    ],
)
def test_a_null_control_that_alarms_or_shows_nothing_fails(null: Series, words: str) -> None:
    assert words in control(judge(evidence({ROW: launches(CLEAN)}, null=null)), "null")


@pytest.mark.parametrize(
    ("planted", "words"),
    [
        (found(ROW, CLEAN), "planted 1 %, not found: equivalent; head/base 1.000"),
        (Series({ROW: launches(PLANTED, 0.01)}), "planted 1 %, not found: inconclusive; head/base"),
        (found(ROW, [-value for value in PLANTED]), "not found: improved"),
        (Series({ROW: (ERROR,)}), "planted 1 %, error: the process"),
        (Series({ROW: (SKIP,) * 4}), "planted 1 %, skipped: out of memory"),
        (Series({ROW: launches(PLANTED[:3], 0.01)}), "only 3 of 4 launches were measured"),
        (Series(), "only 0 of 4 launches were measured"),
        (found(ROW, said=None), "no record says what was really planted"),
    ],
)
def test_a_planted_slow_down_that_is_not_found_fails(planted: Series, words: str) -> None:
    said = control(judge(evidence({ROW: launches(CLEAN)}, planted=planted)), "planted")
    assert words in said
    assert said.startswith(ROW.id)


@pytest.mark.parametrize(("said", "passed"), [(0.0052, True), (0.0148, True), (0.0045, False),
                                              (0.0155, False)])  # fmt: skip
def test_a_planted_slow_down_is_found_with_its_size(said: float, passed: bool) -> None:
    # Read as 1 % within 0.01 %, which is widened by half of the size that was asked for.
    made = evidence({ROW: launches(CLEAN)}, planted=found(ROW, said=said))
    control_of = judge(made).controls[2]
    assert control_of.passed == passed
    assert f"{ROW.id}: planted {said:.2%}"[:-1] in control_of.said
    assert ("read 1.01 %" if passed else "read wrongly: regressed; head/base 1.01") in (
        control_of.said
    )


def test_alternating_processes_hold_the_planted_size_against_what_was_asked() -> None:
    made = evidence({ROW: launches(CLEAN)}, planted=found(ROW, said=None))
    asked = replace(made.setup, mode=ALTERNATING)
    assert judge(replace(made, setup=asked)).exit_code == 0
    other = replace(made, setup=replace(asked, planted_size=0.04))
    assert "planted 4 %, read wrongly" in control(judge(other), "planted")


def test_a_gate_without_a_planted_control_is_broken() -> None:
    made = evidence({ROW: launches(CLEAN)})
    unplanted = replace(made, setup=replace(made.setup, planted_size=0.0))
    assert control(judge(unplanted), "planted") == "no planted slow-down was measured"


def test_the_planted_size_follows_what_the_null_control_says_it_sees() -> None:
    def size(*null: Sequence[float]) -> float:
        rows = [Row("precision/matmul", f"n:{n}", "bf16") for n in range(len(null))]
        made = evidence({row: launches(CLEAN) for row in rows})
        held = {row: launches(values) for row, values in zip(rows, null, strict=True)}
        setup = replace(made.setup, null_rows=tuple(rows))
        return planted_size(replace(made, setup=setup, null=Series(held)))

    assert size(CLEAN) == 0.01
    half_a_percent = (0.005, -0.005, 0.005, -0.005)
    # By hand: a standard error of 0.00289 and the 98.3 and 95 % quantiles of Student's t with three
    # degrees of freedom, 3.740 and 2.353, are 1.78 %, and twice that 3.6 %.
    assert size(half_a_percent) == size(CLEAN, half_a_percent) == 0.036
    assert size((9.0, -9.0, 9.0, -9.0)) == 1.0
    assert size(CLEAN[:1]) == 0.01


def test_a_row_that_was_flagged_and_left_open_is_not_open_as_usual() -> None:
    seconds = {ROW: launches(SLOWER + NOISY)}
    made = evidence({OTHER: launches(CLEAN), ROW: launches(SLOWER)})
    setup = replace(made.setup, unsteady=(ROW,))
    held = replace(made, setup=setup, cases=replace(made.cases, second=seconds))
    one = only(judge(held))
    assert one.unconfirmed
    assert one.smallest_effect is not None
    assert judge(held).open_as_usual == []
    assert describe(one).endswith(f"would have been seen {percent(one.smallest_effect)}")


def test_a_failed_control_is_why_nothing_was_confirmed() -> None:
    rows = {OTHER: launches(CLEAN), ROW: launches(SLOWER)}
    good, bad = evidence(rows), evidence(rows, planted=found(OTHER, CLEAN))
    assert "too few launches were left" in only(judge(good)).reason
    assert only(judge(bad)).reason == "not confirmed: a control failed"
    noisy = evidence({**rows, ROW: launches(NOISY)}, planted=found(OTHER, CLEAN))
    assert "would have been seen" in only(judge(noisy)).reason
    skips = evidence({**rows, ROW: (*launches(SLOWER[:3]), SKIP)}, planted=found(OTHER, CLEAN))
    assert "were skipped" in only(judge(skips)).reason


def test_a_row_that_waits_for_its_confirmation_shows_what_the_screen_read() -> None:
    verdict = only(judge(evidence({OTHER: launches(CLEAN), ROW: launches(SLOWER)})))
    assert verdict.difference is not None
    assert verdict.difference.base_launches == 4
    assert "head/base 1.00501" in describe(verdict)
    looked = evidence({ROW: launches(SLOWER)}, {ROW: launches(NOISY * 2)})
    difference = only(judge(looked)).difference
    assert difference is not None
    assert difference.base_launches == 8


def test_where_no_row_was_timed_no_control_could_be() -> None:
    result = judge(evidence({ROW: [ERROR]}, null=Series(), planted=Series()))
    assert [control.name for control in result.controls] == ["rows"]
    assert result.exit_code == 1


def test_missing_launches_fail_the_control_of_rows() -> None:
    result = judge(evidence({OTHER: launches(CLEAN), ROW: launches(CLEAN[:3])}))
    assert control(result, "rows") == f"missing: {ROW.id} (3 of 4 launches)"
    gone = judge(evidence({ROW: ()}))
    assert "0 of 4" in control(gone, "rows")
    more = judge(evidence({ROW: launches(NOISY[:2] * 3)}))
    assert "6 of 8" in control(more, "rows")
    half = judge(evidence({ROW: launches(SLOWER)}, {ROW: launches(SLOWER)}))
    assert "4 launches of stage 2" in control(half, "rows")


@pytest.mark.parametrize(
    ("null", "words"),
    [
        (Series({ROW: launches(SLOWER)}), "not decided"),
        (Series({ROW: launches(CLEAN[:3])}), "only 3 of 4 launches"),
    ],
)
def test_a_control_that_the_budget_left_open_is_no_broken_instrument(
    null: Series, words: str
) -> None:
    made = evidence({ROW: launches(CLEAN)}, null=null)
    late = judge(replace(made, setup=replace(made.setup, out_of_time=("null",))))
    assert words in late.controls[-1].said
    assert late.controls[-1].unfinished
    assert late.exit_code == INCONCLUSIVE
    alarm = Series({ROW: launches(SLOWER)}, {ROW: launches(SLOWER * 2)})
    rung = replace(made, null=alarm, setup=replace(made.setup, out_of_time=("null",)))
    assert judge(rung).exit_code == INSTRUMENT_BROKEN


def test_a_planted_control_that_the_budget_left_open_is_no_broken_instrument() -> None:
    planted = Series({ROW: launches(PLANTED, 0.01)})
    made = evidence({ROW: launches(CLEAN)}, planted=planted)
    late = judge(replace(made, setup=replace(made.setup, out_of_time=("planted",))))
    assert "planted 1 %, not decided: inconclusive" in late.controls[-1].said
    assert late.exit_code == INCONCLUSIVE


@pytest.mark.parametrize(
    ("series", "words"),
    [
        ({"null": Series(), "planted": Series()}, "of the screen"),
        ({"planted": Series()}, "of control null"),
        ({}, "of control planted"),
    ],
)
def test_a_gate_that_was_broken_off_says_after_what(series: dict[str, Series], words: str) -> None:
    made = evidence({ROW: launches(CLEAN), OTHER: launches(SLOWER)}, None, **series)
    result = judge(replace(made, ended=False))
    assert result.controls[0].name == "end"
    assert result.controls[0].said.endswith(f"the last launches that were kept are {words}")
    assert only(result, OTHER).reason == "not confirmed: the gate was broken off"
    assert result.exit_code == INCONCLUSIVE
    before = judge(Evidence(setup(ROW), ended=False))
    assert before.controls[0].said == "the gate was broken off: no launch was kept"
    assert before.exit_code == INCONCLUSIVE


def test_what_a_broken_off_gate_knows_outranks_that_it_was_broken_off() -> None:
    made = evidence({ROW: launches(SLOWER), OTHER: [ERROR]}, {ROW: launches(SLOWER * 2)})
    result = judge(replace(made, ended=False))
    assert result.controls[0].said.endswith("of the confirmation")
    assert only(result).verdict == "regressed"
    assert result.exit_code == 1
    alarm = Series({ROW: launches(SLOWER)}, {ROW: launches(SLOWER * 2)})
    assert judge(replace(made, null=alarm, ended=False)).exit_code == INSTRUMENT_BROKEN


def test_what_broke_is_asked_of_the_base_alone() -> None:
    made = evidence({OTHER: launches(CLEAN), ROW: [ERROR]})
    assert only(judge(made)).reason.startswith("head or base, the base was not tried alone: the ")
    clean = replace(made, alone=Series({ROW: launches(CLEAN[:2])}))
    assert only(judge(clean)).reason.startswith("head: the process")
    assert judge(clean).exit_code == 1
    broken = judge(replace(made, alone=Series({ROW: (ERROR,)})))
    assert only(broken).verdict == "inconclusive"
    assert only(broken).reason.startswith("no base: it breaks against a copy of itself, too: the ")
    assert broken.exit_code == INCONCLUSIVE


def test_a_side_that_is_known_is_not_asked_for() -> None:
    skips = Launch(None, "error", "head skips what the base measures: no memory", side="head")
    made = evidence({OTHER: launches(CLEAN), ROW: [skips]})
    assert of_unknown_side(made) == []
    assert only(judge(made)).reason == skips.reason
    gone = Launch(None, "no base", "base error: SIGSEGV")
    without = judge(evidence({OTHER: launches(CLEAN), ROW: [gone, *launches(CLEAN[:3])]}))
    assert only(without).reason == "no base in 1 of 4 launches: base error: SIGSEGV"
    assert without.exit_code == INCONCLUSIVE


UNLIKE = Launch(None, "not timed alike", "base by the host clock, head waiting for the host")


def test_a_control_leaves_out_a_row_that_was_not_timed_alike() -> None:
    rows = {ROW: launches(CLEAN), OTHER: launches(CLEAN)}
    both = setup(ROW, OTHER)
    null = Series({ROW: launches(CLEAN), OTHER: (*launches(CLEAN[:3]), UNLIKE)})
    planted = Series(
        {ROW: launches(PLANTED, 0.01), OTHER: (UNLIKE,) * 4}, {ROW: launches(PLANTED * 2, 0.01)}
    )
    made = replace(
        evidence(rows, null=null, planted=planted), setup=replace(both, null_rows=(ROW, OTHER))
    )
    result = judge(made)
    assert [one.passed for one in result.controls] == [True, True, True]
    assert f"is clean in {ROW.id}; left out, base against base, {OTHER.id}: " in (
        result.controls[1].said
    )
    assert "not timed alike in 4 of 4 launches" in result.controls[2].said
    alone = replace(made, setup=replace(both, null_rows=(OTHER,)))
    assert judge(alone).controls[-1].unfinished
    assert judge(alone).exit_code == INCONCLUSIVE


def test_a_hardware_slow_down_breaks_the_instrument_and_names_its_rows() -> None:
    slowed = Launch(None, "slowed down", "in every block")
    result = judge(evidence({OTHER: launches(CLEAN), ROW: [*launches(CLEAN[:3]), slowed]}))
    assert f"every block of a launch of {ROW.id}: look after" in control(result, "hardware")
    assert only(result).reason == "slowed down in 1 of 4 launches: in every block"
    assert only(result, OTHER).verdict == "equivalent"


def test_alternating_processes_are_said_to_be_less_sharp() -> None:
    made = evidence({ROW: launches(CLEAN)})
    assert judge(made).note == ""
    assert judge(replace(made, setup=replace(made.setup, mode=ALTERNATING))).note == LESS_SHARP


def look(first: Sequence[Launch], second: Sequence[Launch] = ()) -> int:
    made = evidence({ROW: first}, {ROW: second})
    return next_look(ROW, made.cases, made.setup.margins(ROW), GatePlan(1))


def test_looks_go_on_until_a_row_is_decided() -> None:
    assert look(launches(CLEAN)) == 0
    assert look(launches(SLOWER)) == 8
    assert look(launches(SLOWER), launches(SLOWER * 2)) == 0
    assert look(launches(SLOWER), launches(CLEAN * 2)) == 0
    assert look(launches(SLOWER), launches(NOISY * 2)) == 16
    assert look(launches(SLOWER), launches(NOISY * 4)) == 32
    assert look(launches(SLOWER), launches(NOISY * 32)) == 0
    assert look((*launches(SLOWER), ERROR)) == 0
    assert look(launches(SLOWER), (*launches(SLOWER), ERROR)) == 0
    assert look(()) == 0


def test_screens_go_on_where_launches_vary() -> None:
    def wanted(first: Sequence[Launch]) -> int:
        made = evidence({ROW: first})
        return next_screen(ROW, made.cases, made.setup.margins(ROW), GatePlan(1))

    assert wanted(()) == 4
    assert wanted(launches(CLEAN)) == 0
    assert wanted(launches(SLOWER)) == 0
    assert wanted(launches(NOISY)) == 8
    assert wanted(launches(NOISY * 2)) == 16
    assert wanted(launches(NOISY * 4)) == 0
    assert wanted((*launches(NOISY), ERROR)) == 0


def test_the_null_rows_are_one_of_the_gpu_and_one_of_launches() -> None:
    hosts = [Row("allocator/host_malloc", f"n:{n}", "glibc") for n in range(5)]
    on_gpu = frozenset({ROW.technique, OTHER.technique})
    by_launches = frozenset({OTHER.technique})
    for seed in range(5):
        assert set(choose_null_rows([*hosts, ROW, OTHER], on_gpu, by_launches, seed)) == {
            ROW,
            OTHER,
        }
        turned = choose_null_rows(hosts[::-1], on_gpu, by_launches, seed)
        assert choose_null_rows(hosts, on_gpu, by_launches, seed) == turned
    assert (
        len({tuple(choose_null_rows(hosts, on_gpu, by_launches, seed)) for seed in range(20)}) > 1
    )
    assert choose_null_rows([OTHER], on_gpu, by_launches, 1) == [OTHER]
    assert choose_null_rows([], on_gpu, by_launches, 1) == []


def test_a_row_in_which_no_plant_can_be_found_stands_in_no_control() -> None:
    made = evidence({ROW: launches(CLEAN), OTHER: launches(CLEAN)})
    floored = replace(made, setup=replace(made.setup, floors={ROW.id: 0.05, OTHER.id: 0.999}))
    assert control_rows(made) == [ROW, OTHER]
    assert control_rows(floored) == [ROW]
    alone = evidence({OTHER: launches(CLEAN)})
    alone = replace(alone, setup=replace(alone.setup, floors={OTHER.id: 0.999}))
    assert control_rows(alone) == [OTHER]
