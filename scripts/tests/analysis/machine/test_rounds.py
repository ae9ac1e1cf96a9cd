"""What a qualification leaves open is measured again, and looking again makes no verdict false."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpulift.analysis.machine import rounds
from gpulift.analysis.machine.checks import LOOKS, for_all_looks, judge, judge_run
from gpulift.analysis.machine.results import INCONCLUSIVE, PASS, CheckResult
from gpulift.analysis.summary import summarise
from gpulift.engine import machine, measuring
from gpulift.ground.errors import FAILED, INTERRUPTED, OK
from gpulift.ground.estimate import Estimate
from gpulift.records.parse import read_record
from gpulift.records.read import Run
from gpulift.verdicts.stats import over_launches
from tests import runs_made, sample


def results_of(records: list[sample.Json]) -> tuple[CheckResult, ...]:
    return judge_run(summarise(Run(Path("run"), tuple(map(read_record, records)))), None)


def estimate(logs: np.ndarray) -> Estimate:
    return for_all_looks(over_launches(logs.tolist(), logs))


def test_the_interval_of_a_look_is_that_of_its_share() -> None:
    wide = estimate(np.array([0.0, 0.1, 0.2]))
    assert wide.confidence == pytest.approx(1 - 0.05 / 3)
    t = 7.648907  # of 2 degrees of freedom, two-sided 0.05 / 3
    assert wide.high == pytest.approx(math.exp(0.1 + t * 0.1 / math.sqrt(3)), rel=1e-4)
    assert wide.low == pytest.approx(math.exp(0.1 - t * 0.1 / math.sqrt(3)), rel=1e-4)
    one = Estimate(1.0, 0.9, 1.1, 1, 0.975)
    assert for_all_looks(one) == one


@pytest.mark.parametrize(("true", "wrong"), [(0.95, "fail"), (0.95 - 1e-9, "pass")])
def test_looking_again_makes_no_false_verdict_likelier(true: float, wrong: str) -> None:
    """The worst case: a card exactly at its limit, looked at until it is decided."""
    random, trials, false = np.random.default_rng(7), 4000, 0
    for _ in range(trials):
        logs = math.log(true) + random.normal(0, 0.02, LOOKS[-1])
        words = (judge(estimate(logs[:look]), 1.0, 0.05).verdict for look in LOOKS)
        false += next((word for word in words if word != INCONCLUSIVE), "") == wrong
    assert false / trials < 0.025 + 2 * math.sqrt(0.025 * 0.975 / trials)


def test_a_sound_card_is_decided_by_looking_again() -> None:
    random, trials = np.random.default_rng(8), 500
    left = [0] * len(LOOKS)
    for _ in range(trials):
        logs = random.normal(0, 0.03, LOOKS[-1])
        words = [judge(estimate(logs[:look]), 1.0, 0.05).verdict for look in LOOKS]
        assert "fail" not in words
        for index in range(len(LOOKS)):
            left[index] += PASS not in words[: index + 1]
    assert left[0] > trials / 2
    assert left[-1] < trials / 50


def test_only_cases_that_launches_can_decide_are_measured_again() -> None:
    results = results_of(runs_made.open_roof(3))
    (case,) = rounds.open_cases(results, LOOKS[1])
    assert case.rows == (("ceiling/host_link", "bytes:1073741824", "h2d"),)
    assert (case.checks, case.decides, case.seconds) == (1, True, 3.0)
    assert not rounds.open_cases(results, 3), "the launches of this look are there"
    assert not rounds.open_cases(results_of(runs_made.open_roof(6)), LOOKS[2])
    once = runs_made.open_roof(1)
    assert not rounds.open_cases(results_of(once), LOOKS[1]), (
        "of three launches that were asked for"
    )


def test_what_decides_comes_first_then_what_tells_most_per_second() -> None:
    (one,) = rounds.open_cases(results_of(runs_made.open_roof(3)), LOOKS[1])
    slow = replace(one, decides=False, seconds=50.0)
    assert rounds.within([one, slow], 52.0) == [one]
    assert rounds.within([slow, one], 53.0) == [slow, one]
    assert rounds.within([slow, one], 10.0) == [one]


def test_without_time_an_open_check_stays_open_and_that_is_said(root: Path) -> None:
    said: list[str] = []
    still_open = results_of(runs_made.open_roof(3))
    options = measuring.Options(quick=True)
    assert rounds.measure(root, options, lambda _: still_open, 0, said.append) == OK
    assert said == ["1 check open, and no time to measure them again: a longer --quick has it"]


@pytest.mark.parametrize(
    ("code", "ends_s", "told"),
    [
        (INTERRUPTED, 1e9, INTERRUPTED),  # by the user
        (INTERRUPTED, 10.0, OK),  # by the budget, which keeps what ended in time
        (FAILED, 1e9, FAILED),
        (OK, 1e9, OK),
    ],
)
def test_how_a_round_ends(
    root: Path, monkeypatch: pytest.MonkeyPatch, code: int, ends_s: float, told: int
) -> None:
    now = [0.0]

    def measured(*_: object) -> int:
        now[0] += 20
        return code

    monkeypatch.setattr(machine, "measure", measured)
    folder = sample.write(root / "run", [])
    options, still_open = measuring.Options(), results_of(runs_made.open_roof(3))
    ended = rounds.measure(folder, options, lambda _: still_open, ends_s, print, lambda: now[0])
    assert ended == told
