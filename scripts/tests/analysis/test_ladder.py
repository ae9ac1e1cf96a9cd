"""What each setting brings over those before it, from made-up records of the ladder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpulift.analysis.cost import Prices
from gpulift.analysis.doubts import doubts_of
from gpulift.analysis.errata import TEXTS, read_errata
from gpulift.analysis.gains import gains_of
from gpulift.analysis.ladder import Ladder, Rung, ladders_of, rungs_of
from gpulift.analysis.standing import ADDED_UP, KNOWN_ERROR, qualm
from tests.figures import machine_views, summary
from tests.sample import Json, arm, launches, skipped_arm

LLAMA: Json = {"model": "llama_1b"}
GIB = 1 << 30
SECONDS = {"torch_default": 1.6, "tf32": 0.4, "bf16": 0.2, "compiled": 0.16}


def rung(name: str, seconds: float, **other: Any) -> Json:
    """A step of 8,000 tokens."""
    made = {"cost": {"items": 8000.0, "item": "token"}, "noise": 0.0, "launch_noise": 0.0}
    return arm(name, seconds, **{"memory": 20 * GIB, **made, **other})


def climbed(*more: Json, case: Json = LLAMA, count: int = 3, **other: Any) -> list[Json]:
    """Launches of a ladder, and of further arms above it."""
    arms = [rung(name, seconds, **other) for name, seconds in SECONDS.items()]
    return launches(count, "job/ladder", case, [*arms, *more])


def ladder(records: list[Json], **other: Any) -> Ladder:
    (found,) = ladders_of([summary(records)], **other)
    return found


def gains(rungs: tuple[Rung, ...]) -> list[float | None]:
    return [round(one.before.speedup.value, 3) if one.before else None for one in rungs]


def test_each_rung_is_held_against_the_one_before_it_and_against_bf16() -> None:
    (case,) = summary(climbed()).cases
    rungs = rungs_of(case)
    assert [one.name for one in rungs] == list(SECONDS)
    assert [round(one.per_s.value) for one in rungs] == [5000, 20000, 40000, 50000]
    assert gains(rungs) == [None, 4.0, 2.0, 1.25]
    whole = [one.whole and round(one.whole.speedup.value, 3) for one in rungs]
    assert whole == [0.125, 0.5, None, 1.25]
    assert [one.memory_bytes for one in rungs] == [20 * GIB] * 4
    assert not any(one.apart for one in rungs)


def test_a_gain_is_of_neighbouring_windows_with_their_interval() -> None:
    step = ladder(climbed(noise=0.002, launch_noise=0.001)).rungs[3].before
    assert step is not None
    assert (step.over, step.why_not, step.speedup.launches) == ("bf16", "", 3)
    assert step.speedup.low is not None
    assert step.speedup.low < step.speedup.value


def test_the_sentence_names_the_whole_and_what_each_setting_brings_and_costs() -> None:
    same = rung("fused", 0.1602, noise=0.01, launch_noise=0.01)
    lean = rung("lean", 0.2, memory=15 * GIB)
    said = ladder(climbed(lean, rung("large", 0.25, memory=16 * GIB))).said
    assert said == (
        "Llama 1B: 50000 tokens/s with all up to compiled, 1.25× bf16;"
        " tf32 brings 4.00×; bf16 brings 2.00×; compiled brings 1.25×;"
        " lean costs 20.0 % of the speed and saves 5.00 GiB;"
        " large costs 20.0 % of the speed and takes 1.00 GiB more"
    )
    assert ladder(climbed(same)).said.endswith("; fused brings no speed that shows")


def test_a_rung_above_one_that_was_skipped_says_what_it_is_held_against() -> None:
    arms = [rung(name, seconds) for name, seconds in SECONDS.items()]
    arms[2] = skipped_arm("bf16", "no BF16 on this card")
    found = ladder(launches(3, "job/ladder", LLAMA, arms))
    assert gains(found.rungs) == [None, 4.0, 2.5]
    assert [one.apart for one in found.rungs] == [False, False, True]
    assert found.left_out == (("bf16", "no BF16 on this card"),)
    assert found.said.endswith("; compiled (over tf32) brings 2.50×")


def test_without_bf16_a_ladder_is_held_against_its_first_rung() -> None:
    arms = [rung(name, seconds) for name, seconds in SECONDS.items()]
    arms[0], arms[2] = skipped_arm("torch_default", "no time"), skipped_arm("bf16", "no time")
    found = ladder(launches(3, "job/ladder", LLAMA, arms))
    assert (found.reference, found.left_out[0]) == ("tf32", ("torch_default", "no time"))
    assert "2.50× tf32" in found.said


def test_of_one_launch_the_ratios_are_said_and_that_it_is_one() -> None:
    found = ladder(climbed(count=1))
    assert all(one.brings for one in found.rungs[1:])
    assert "; tf32 brings 4.00×; " in found.said
    assert found.said.endswith("; one launch: provisional")


def test_of_two_runs_the_one_of_more_launches_speaks() -> None:
    once, thrice = summary(climbed(count=1), "once"), summary(climbed(), "thrice")
    assert [one.run for one in ladders_of([once, thrice])] == ["thrice"]


def test_the_job_is_a_ladder_where_the_longer_one_was_not_launched_as_often() -> None:
    arms = [rung("bf16", 0.2), rung("compiled", 0.16), rung("fp8", 0.128)]
    job = launches(1, "job/step", LLAMA, arms)
    assert ladder(job).said.startswith("Llama 1B: 62500 tokens/s with all up to fp8, 1.56× bf16;")
    assert ladder([*job, *climbed(count=1)]).rungs[0].name == "torch_default"
    thrice = ladder([*launches(3, "job/step", LLAMA, arms), *climbed(count=1)])
    assert thrice.rungs[0].name == "bf16"
    added_up, alone = summary(job).worths
    assert (qualm(added_up), qualm(alone)) == (ADDED_UP, ""), "fp8, compiled"


def test_models_that_have_columns_come_first_and_one_rung_is_no_ladder() -> None:
    alone = launches(3, "job/ladder", {"model": "other"}, [rung("torch_default", 1.0)])
    more = [*climbed(case={"model": "toy"}), *climbed(case={"model": "gpt2"}), *climbed()]
    found = ladders_of([summary([*alone, *more])])
    assert [one.model for one in found] == ["Llama 1B", "GPT-2", "toy"]


def test_joules_and_money_are_there_where_they_are_known() -> None:
    first = ladder(climbed()).rungs[0]
    assert (first.joules, first.usd) == (None, None)
    first = ladder(climbed(power_w=500.0), prices=Prices(3.6)).rungs[0]
    assert first.joules == pytest.approx(500 * 1.01 * 1.6 * 125e3)
    assert first.usd is not None
    assert first.usd.value == pytest.approx(1.6 * 125e3 * 3.6 / 3600)


def test_what_an_erratum_withholds_is_not_said(tmp_path: Path) -> None:
    cells = "".join(f'{key} = "x"\n' for key in TEXTS)
    file = tmp_path / "errata.toml"
    file.write_text(
        f'[[errata]]\nnumber = 1\n{cells}runs = ["*"]\nleads = false\ntechniques = "ladder"\n'
    )
    made = summary(climbed())
    found = ladder(climbed(), doubts=doubts_of([made], read_errata(file)))
    assert {one.before.why_not for one in found.rungs if one.before} == {KNOWN_ERROR}
    assert "×" not in found.said


def test_its_ratios_over_the_defaults_lead_no_list() -> None:
    made = summary(climbed())
    assert {row.arm: qualm(row) for row in made.worths} == {
        "tf32": "",
        "bf16": ADDED_UP,
        "compiled": ADDED_UP,
    }
    (view,) = machine_views([made])
    assert (view.steps, view.lines, view.kept_back) == ((), (), [])
    shown = view.leading["job/ladder"].row
    assert (shown.arm, shown.baseline) == ("compiled", "bf16"), "where training begins"
    assert [(one.row.arm, one.row.baseline) for one in gains_of([made])] == [("compiled", "bf16")]
