"""What a quick run measures: the cases that tell most, as many as there is time for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpulift.engine import machine, measuring, quick, runs
from gpulift.engine.machine import CaseInfo, TechniqueInfo, matcher
from gpulift.engine.quick import (
    ARM_TIME_S,
    FIRST_SHARE,
    HOST_INTERPRETER_S,
    INTERPRETER_S,
    LAUNCHES,
    STEPS_ARM_S,
    choose,
)
from gpulift.ground.arguments import QUICK, time_s, with_default
from gpulift.ground.errors import GpuliftError
from gpulift.records.model import Context
from gpulift.records.parse import read_context
from tests import sample

EVERYTHING = matcher(None)


def technique(
    name: str, cases: int = 1, ceiling: bool = False, gpus: int = 0, slow: bool = False
) -> TechniqueInfo:
    quick = [CaseInfo(f"n:{number}", True, "burst") for number in range(cases)]
    arms = ("plain", "better")
    every = (*quick, CaseInfo("large", False, "burst"))
    return TechniqueInfo(name, "", gpus, ceiling, arms, every, arms if slow else ())


@pytest.fixture
def here() -> Context:
    return read_context(sample.CPU_CONTEXT, "here")


def cases(rows: tuple[tuple[str, str, str], ...]) -> list[str]:
    return list(dict.fromkeys(f"{name}/{case}" for name, case, _ in rows))


def test_with_enough_time_all_quick_cases_are_measured_and_no_other(here: Context) -> None:
    chosen = choose([technique("a/b", cases=2)], here, 1e6, EVERYTHING)
    assert cases(chosen.rows) == ["a/b/n:0", "a/b/n:1"]
    assert not chosen.left_out


def test_what_judges_the_machine_comes_first_then_one_case_of_each_technique(here: Context) -> None:
    known = [
        technique("a/many", cases=3),
        technique("z/slow", slow=True),
        technique("y/roof", ceiling=True),
    ]
    longest = choose(known, here, 1e6, EVERYTHING)
    order = ["y/roof/n:0", "a/many/n:0", "z/slow/n:0", "a/many/n:1", "a/many/n:2"]
    assert cases(longest.rows) == order
    budgets = [longest.all_s * part for part in (0.2, 0.5, 0.9)]
    for seconds in budgets:
        chosen = choose(known, here, seconds, EVERYTHING)
        assert chosen.all_s == longest.all_s
        assert sorted([*cases(chosen.rows), *chosen.left_out]) == sorted(order)
        assert chosen.left_out, "not all fit"
        assert cases(chosen.rows)[0] == "y/roof/n:0"


def test_how_many_images_it_can_feed_is_asked_first_of_a_machine_without_a_gpu(
    here: Context,
) -> None:
    known = [technique("a/short"), technique(quick.FEEDING, slow=True), technique("y/roof")]
    known[2] = replace(known[2], ceiling=True)
    order = ["y/roof/n:0", f"{quick.FEEDING}/n:0", "a/short/n:0"]
    assert cases(choose(known, here, 1e6, EVERYTHING).rows) == order
    with_gpu = read_context(sample.GPU_CONTEXT, "here")
    gpu_order = [order[0], order[2], order[1]]
    assert cases(choose(known, with_gpu, 1e6, EVERYTHING).rows) == gpu_order


def test_interpreters_start_more_slowly_on_a_machine_without_a_gpu(here: Context) -> None:
    known = [technique("a/slow", slow=True)]
    with_gpu = read_context(sample.GPU_CONTEXT, "here")
    longer = choose(known, here, 1e6, EVERYTHING).all_s
    more_s = longer - choose(known, with_gpu, 1e6, EVERYTHING).all_s
    assert more_s == pytest.approx(LAUNCHES * 2 * (HOST_INTERPRETER_S - INTERPRETER_S))
    assert more_s > 0


def steps(name: str = "a/steps", cases: int = 2) -> TechniqueInfo:
    return replace(technique(name, cases, gpus=1, slow=True), whole_steps=True)


def test_whole_steps_come_after_the_ceilings_and_are_measured_once(here: Context) -> None:
    known = [technique("a/short"), steps(), technique("y/roof", ceiling=True)]
    with_gpu = read_context(sample.GPU_CONTEXT, "here")
    chosen = choose(known, with_gpu, 1e6, EVERYTHING)
    assert cases(chosen.rows) == ["y/roof/n:0", "a/steps/n:0", "a/steps/n:1", "a/short/n:0"]
    asked = {
        launches: choose([steps()], with_gpu, 1e6, EVERYTHING, launches).all_s
        for launches in (1, LAUNCHES, 9)
    }
    assert set(asked.values()) == {2 * 2 * (STEPS_ARM_S + INTERPRETER_S)}
    without = choose(known, here, LAUNCHES * 2 * 2 * 0.4, EVERYTHING)
    assert {"a/steps/n:0", "a/steps/n:1"} < set(cases(without.rows)), "their rows say why"
    assert not without.left_out


def test_the_default_has_time_for_the_ceilings_of_a_card_and_the_job() -> None:
    seconds = FIRST_SHARE * float(QUICK.removesuffix("s"))
    ceilings = [technique(f"ceiling/{number}", ceiling=True) for number in range(17)]
    arms = ("bf16", "compiled", "fp8")
    job = replace(steps(quick.JOB, 1), arms=arms, python=arms)
    known = [steps(), job, *ceilings]
    chosen = choose(known, read_context(sample.GPU_CONTEXT, ""), seconds, EVERYTHING)
    assert cases(chosen.rows)[17:] == [f"{quick.JOB}/n:0"], "others stand behind it"


def test_a_catalogue_tells_which_steps_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = {"id": "a/b", "arms": ["a"], "cases": []}
    told = [plain, {**plain, "whole_steps": True}]
    monkeypatch.setattr(machine, "_answer", lambda *_: told)
    assert [one.whole_steps for one in machine.catalogue(Path())] == [False, True]


def test_a_sustained_case_is_measured_once(here: Context) -> None:
    burst = technique("a/b")
    sustained = replace(burst, cases=(CaseInfo("regime:sustained", True, "sustained"),))
    once, thrice = (choose([one], here, 1e6, EVERYTHING).all_s for one in (sustained, burst))
    assert LAUNCHES * once == pytest.approx(thrice)


def test_what_lacks_a_package_takes_no_time_and_its_rows_say_why() -> None:
    with_gpu = read_context(sample.GPU_CONTEXT, "here")
    missing = replace(steps(), unavailable="the Python package torch is not installed")
    chosen = choose([missing], with_gpu, 0.1, EVERYTHING)
    assert cases(chosen.rows) == ["a/steps/n:0", "a/steps/n:1"]
    assert (chosen.all_s, chosen.left_out) == (0, ())


def test_what_cannot_run_here_takes_no_time(here: Context) -> None:
    known = [technique("a/gpu", gpus=1, cases=50), technique("b/host")]
    chosen = choose(known, here, LAUNCHES * 1.3, EVERYTHING)
    assert not chosen.left_out
    assert len(cases(chosen.rows)) == 51


def test_what_was_not_built_is_named_so_that_its_record_says_why(here: Context) -> None:
    missing = TechniqueInfo("a/torch", "", 0, False, (), (), unavailable="built without LibTorch")
    chosen = choose([missing, technique("b/host", cases=90)], here, 10, EVERYTHING)
    assert chosen.rows[0] == ("a/torch", "", "-")


def test_a_filter_counts_the_arms_that_it_leaves(here: Context) -> None:
    known = [technique("a/b", slow=True), technique("c/d")]
    chosen = choose(known, here, 1e6, matcher("a/b.*plain"))
    assert chosen.rows == (("a/b", "n:0", "plain"),)
    whole = choose(known[:1], here, 1e6, EVERYTHING)
    assert chosen.all_s == pytest.approx(whole.all_s / 2)


def test_a_run_that_is_cut_says_what_it_leaves_out_and_is_another_run(
    here: Context, tmp_path: Path
) -> None:
    said: list[str] = []
    known = [technique("a/b", cases=4)]
    options = measuring.Options(quick=True)
    cut = measuring.within(5, options, known, here, said.append)
    assert said == ["2 cases left out for time: --quick 10s has all; --verbose names them"]
    assert cut.given() == {"quick": True, "quick_s": 5}
    measuring.begin(tmp_path, cut, runs.Wanted("m", "abc", False, cut.given()))
    assert (tmp_path / runs.ROWS_FILE).read_text().splitlines()[0] == "a/b\tn:0\tplain"
    assert f"{tmp_path}/{runs.ROWS_FILE}" in cut.flags(tmp_path)
    said.clear()
    measuring.within(5, options, known, here, said.append, verbose=True)
    assert said == ["2 cases left out for time: --quick 10s has all: a/b/n:2, a/b/n:3"]
    said.clear()
    assert measuring.within(60, options, known, here, said.append) == options
    assert not said


def test_other_launches_and_windows_take_other_time(here: Context) -> None:
    known = [technique("a/b", slow=True)]
    usual, launches, windows = (
        choose(known, here, 1e6, EVERYTHING, *asked).all_s
        for asked in ((), (2 * LAUNCHES, None), (None, ARM_TIME_S + 1))
    )
    assert launches == pytest.approx(2 * usual)
    assert windows == pytest.approx(usual + LAUNCHES * len(known[0].arms))
    options = measuring.Options(quick=True, launches=2 * LAUNCHES)
    assert measuring.within(usual, replace(options, launches=None), known, here, print)
    with pytest.raises(GpuliftError, match="too short"):
        measuring.within(usual, options, known, here, print)


def test_too_little_time_for_any_case_is_refused(here: Context) -> None:
    with pytest.raises(GpuliftError, match="--quick 1s: is too short for any case"):
        measuring.within(1, measuring.Options(quick=True), [technique("a/b")], here, print)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["qualify", "--quick"], ["qualify", "--quick", "120s"]),
        (["qualify", "--quick", "5m", "--json"], ["qualify", "--quick", "5m", "--json"]),
        (["run", "--quick", "pinned"], ["run", "--quick", "120s", "pinned"]),
        (["run", "--quick", "--gpus", "0"], ["run", "--quick", "120s", "--gpus", "0"]),
        (["run", "--quick=5m"], ["run", "--quick=5m"]),
        (["run", "--quick", "300"], ["run", "--quick", "300"]),
        (["run", "--quick", "5min"], ["run", "--quick", "5min"]),
        (["run", "--quick", "8x8"], ["run", "--quick", "120s", "8x8"]),
        (["watch", "--", "job", "--quick"], ["watch", "--", "job", "--quick"]),
        (["run", "--quick", "--", "-RE"], ["run", "--quick", "120s", "--", "-RE"]),
        ([], []),
    ],
)
def test_quick_alone_has_a_default(given: list[str], told: list[str]) -> None:
    assert with_default(given) == told


def test_times_have_units() -> None:
    texts = ("90s", "1.5m", "2h", "300s", "10m")
    assert [time_s("--time", text) for text in texts] == [90, 90, 7200, 300, 600]


@pytest.mark.parametrize("text", ["0s", "5", "m", "5min", "-5s", "5 s", ""])
def test_what_is_no_time_is_refused_with_its_option(text: str) -> None:
    with pytest.raises(GpuliftError, match=r"--quick .*: give a time above 0 such as 90s"):
        time_s("--quick", text)
