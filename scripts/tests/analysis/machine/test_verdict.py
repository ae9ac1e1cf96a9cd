"""The verdict on a machine in one word and one sentence, and a GPU in one line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from gpulift.analysis.machine.card_lines import of_card
from gpulift.analysis.machine.qualification import judge_together
from gpulift.analysis.machine.results import FAIL, INCONCLUSIVE, PASS, SKIPPED, CheckResult
from gpulift.analysis.machine.verdict import answer, exit_code_of, load_of, overall
from gpulift.ground.errors import FAILED, OK
from gpulift.ground.errors import INCONCLUSIVE as OPEN
from tests import runs_made, sample
from tests.figures import summary


def checks(verdicts: Mapping[str, int], kind: str = "roof") -> list[CheckResult]:
    return [
        CheckResult(f"{kind}/{word}/{number}", word)
        for word, count in verdicts.items()
        for number in range(count)
    ]


@pytest.mark.parametrize(
    ("results", "verdict", "said"),
    [
        (checks({PASS: 2, SKIPPED: 1}), PASS, "Pass (2 checks), 0 undecided, 0 failed"),
        (
            [*checks({PASS: 20, INCONCLUSIVE: 2}), *checks({INCONCLUSIVE: 46}, "time")],
            PASS,
            "Pass (20 checks), 48 undecided, 0 failed",
        ),
        (
            checks({PASS: 3, FAIL: 1, SKIPPED: 5}),
            FAIL,
            "Fail (1 check), 3 passed, 0 undecided",
        ),
        (
            checks({PASS: 1, INCONCLUSIVE: 1}),
            INCONCLUSIVE,
            "Undecided (1 check), 1 passed, 0 failed",
        ),
        (
            [*checks({PASS: 1}), *checks({FAIL: 2}, "time")],
            PASS,
            "Pass (1 check), 0 undecided, 0 failed; 2 step times too long, which decides nothing",
        ),
        (
            checks({PASS: 3}, "health"),
            INCONCLUSIVE,
            "Undecided: no speed was judged; 3 passed, 0 undecided, 0 failed",
        ),
        (checks({SKIPPED: 1}), SKIPPED, "Not judged: nothing that was measured here has a limit"),
        ([], SKIPPED, "Not judged: nothing that was measured here has a limit"),
    ],
)
def test_the_sentence_is_that_of_all_checks(
    results: list[CheckResult], verdict: str, said: str
) -> None:
    found = answer(results, "by what")
    assert (found.verdict, found.sentence) == (verdict, said)


def test_what_failed_is_named_and_of_much_a_part() -> None:
    assert answer(checks({PASS: 2})).names == ""
    found = [*checks({FAIL: 5}), *checks({FAIL: 1}, "time")]
    assert answer(found).names == ": roof/fail/0, roof/fail/1, roof/fail/2, 2 more"


def test_checks_are_counted_by_kind() -> None:
    results = [*checks({PASS: 2, INCONCLUSIVE: 1}), *checks({PASS: 1}, "health")]
    assert answer(results).counts == ("roofs: 2 pass, 1 inconclusive", "health: 1 pass")


def test_the_worst_verdict_counts_of_what_decides() -> None:
    made = {word: CheckResult("roof/x", word) for word in (PASS, FAIL, INCONCLUSIVE, SKIPPED)}
    assert overall(list(made.values())) == FAIL
    assert overall([made[PASS], made[INCONCLUSIVE], made[SKIPPED]]) == INCONCLUSIVE
    assert overall([made[PASS], made[SKIPPED]]) == PASS
    assert overall([CheckResult("time/x", INCONCLUSIVE)]) == INCONCLUSIVE
    assert overall([]) == SKIPPED


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ({"roof/a": PASS}, OK),
        ({"roof/a": PASS, "roof/b": FAIL}, FAILED),
        ({"health/ecc": FAIL}, FAILED),
        ({"siblings/card": FAIL}, FAILED),
        ({"case/a/b": FAIL}, FAILED),
        ({"time/launch/x": FAIL, "cost/y": FAIL}, OK),
        ({"roof/a": INCONCLUSIVE, "roof/b": PASS}, OPEN),
        ({"roof/a": INCONCLUSIVE, **{f"roof/{n}": PASS for n in range(9)}}, OK),
        ({"roof/a": PASS, **{f"time/a/{n}": INCONCLUSIVE for n in range(9)}}, OK),
        ({"roof/a": SKIPPED}, OK),
        ({}, OK),
    ],
)
def test_exit_codes(verdicts: Mapping[str, str], code: int) -> None:
    assert exit_code_of([CheckResult(id, word) for id, word in verdicts.items()]) == code


def test_what_breaks_only_while_all_cards_are_busy_fails() -> None:
    failed = judge_together("0a1b2c3d", summary(runs_made.with_troubles()))
    assert exit_code_of(failed) == FAILED
    assert {one.verdict for one in failed} == {FAIL}
    assert all(one.remedy and "0a1b2c3d, all at once" in one.id for one in failed)


def product(regime: str, **more: Any) -> list[sample.Json]:
    cost = {"flops": 8.5e11, "roof": "gemm/bf16"}
    (made,) = sample.launches(
        1, "ceiling/gemm", {"regime": regime}, [sample.arm("best", 1e-3, cost=cost)], **more
    )
    return [{**made, "regime": regime, "time_s": {"windows": 2.0, "lead_in": 18.0, "total": 30.0}}]


def test_the_verdict_says_whether_a_gpu_was_under_sustained_load() -> None:
    burst, long = (summary(product(regime)) for regime in ("burst", "sustained"))
    assert load_of(burst) == "no sustained load was applied"
    assert load_of(long) == "20.0 s of sustained load"
    assert load_of(long, long) == "20.0 s of sustained load on each GPU"
    assert load_of(long, burst) == "no sustained load was applied"
    assert load_of(summary(runs_made.without_gpu())) == ""
    said = answer(checks({PASS: 1}), load=load_of(long)).sentence
    assert said.endswith("0 failed; 20.0 s of sustained load")
    assert answer([], load=load_of(burst)).sentence.startswith("Not judged")


def test_a_gpu_is_one_line_of_what_its_records_tell() -> None:
    made = product("burst")
    made[0]["telemetry"] |= {"temperature_c": {"min": 40.0, "median": 50.0, "max": 61.0}}
    told = of_card(summary(made))
    assert re.fullmatch(
        r"GPU 1a2b3c4d: bf16 8[45]\d TFLOP/s; at most 1980 MHz, 61 °C, 699 W;"
        r" clock held down: sw_power_cap",
        told,
    )
    both = of_card(summary([*made, *product("sustained")]))
    assert re.search(r": bf16 8[45]\d TFLOP/s, 8[45]\d TFLOP/s sustained; at", both)
    made[0]["telemetry"], made[0]["telemetry_missing"] = None, "NVML cannot be opened"
    blind = {key: value for key, value in made[0].items() if value is not None}
    assert of_card(summary([blind])) == told.partition(";")[0]
    assert of_card(summary(runs_made.without_gpu())) == ""
