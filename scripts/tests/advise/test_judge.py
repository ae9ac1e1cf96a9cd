"""What is told of processes."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, replace

import msgspec
import pytest

from gpulift.advise.advice import Advice, Row, winners
from gpulift.advise.evidence import (
    BASELINE,
    Arm,
    Check,
    End,
    Facts,
    Failed,
    Loader,
    Memory,
    Process,
)
from gpulift.advise.judge import advise
from gpulift.advise.settings import Setting
from tests.advise.made import FACTS, LOSSES, STEP_S, launches, replay, rounds, silent, tried, turn

WORKERS = Setting("workers_8", "num_workers 4 -> 8", "bits")
GAINS = (1.2, 1.21, 1.19)
MIB = 1 << 20


def of_replays(processes: Sequence[Process]) -> Advice:
    return advise(processes, (), (), ())


def of_rounds(processes: Sequence[Process], setting: Setting = WORKERS) -> Row:
    return named(advise((), processes, [setting], ()), setting.name)


def named(advice: Advice, name: str) -> Row:
    (row,) = (row for row in advice.rows if row.name == name)
    return row


def with_arm(processes: Sequence[Process], arm: Arm) -> list[Process]:
    return [replace(one, arms=one.arms | {arm.arm: arm}) for one in processes]


def with_checks(processes: Sequence[Process], *checks: Check) -> list[Process]:
    added = {check.arm: check for check in checks}
    return [replace(one, checks=one.checks | added) for one in processes]


def test_what_helps_is_told_with_its_line() -> None:
    advice = of_replays(launches({"fused": 1.1, "cudnn_search": 0.9, "foreach": 1.0}))
    fused = named(advice, "fused")
    assert fused.verdict == "helps"
    assert fused.gain is not None
    assert fused.gain.mid == pytest.approx(1.1, rel=0.002)
    assert fused.step_s == pytest.approx(STEP_S / 1.1, rel=0.2)
    assert fused.result == "same bits"
    assert named(advice, "cudnn_search").verdict == "hurts"
    assert advice.do == ("fused: AdamW(..., fused=True)",)
    assert [row.verdict for row in advice.rows] == ["upper bound", "helps", "no change", "hurts"]


def test_no_change_tells_what_would_have_been_seen() -> None:
    row = named(of_replays(launches({"fused": 1.0}, noise=0.01)), "fused")
    assert row.verdict == "no change"
    assert row.gain is not None
    assert row.gain.low is not None
    assert row.least == pytest.approx(1 - row.gain.low / row.gain.mid, rel=0.05)


def test_one_launch_decides_nothing() -> None:
    advice = of_replays(launches({"fused": 1.5}, count=1))
    row = named(advice, "fused")
    assert row.verdict == "undecided"
    assert row.gain is not None
    assert row.gain.mid == pytest.approx(1.5, rel=0.01)
    assert row.gain[1:] == (None, None)
    assert advice.step_s is not None
    assert advice.step_s.low is None
    assert advice.do == ()


def test_an_interval_beside_1_is_not_enough_among_many() -> None:
    gains = (1.008, 1.012, 1.010)
    one = [replay({"fused": gain}) for gain in gains]
    assert named(of_replays(one), "fused").verdict == "helps"
    others = {f"other_{number}": 1.0 for number in range(10)}
    chance = random.Random(2)
    many = [
        replay({"fused": gain, **{name: chance.gauss(1, 0.02) for name in others}})
        for gain in gains
    ]
    row = named(of_replays(many), "fused")
    assert row.verdict == "undecided"
    assert row.why


def test_what_is_on_already_is_worth_the_inverse() -> None:
    on = Arm(arm="compile", label="torch.compile", state="already on")
    advice = of_replays(with_arm(launches({"compile": 0.8}), on))
    row = named(advice, "compile")
    assert (row.verdict, row.step_s, row.why) == ("already on", None, "")
    assert row.gain is not None
    assert row.gain.mid == pytest.approx(1.25, rel=0.01)
    assert advice.do == ()


def test_what_is_on_and_costs_should_be_turned_off() -> None:
    on = Arm(arm="compile", label="torch.compile", state="already on")
    advice = of_replays(with_arm(launches({"compile": 1.2}), on))
    assert named(advice, "compile").verdict == "already on"
    assert advice.do == ("torch.compile: turn it off, it makes the step slower",)


def test_arms_that_were_not_measured() -> None:
    away = Arm(arm="cudnn_search", label="cuDNN", state="not applicable", why="no convolution ran")
    flash = Arm(arm="attention_flash", label="flash", state="not applicable", why=away.why)
    broken = Arm(arm="bf16", label="BF16", state="failed", why="out of memory")
    processes = [
        replay({}, arms=(away, flash, broken, tried("tf32"), tried("fused"))) for _ in range(2)
    ]
    processes[0] = replace(processes[0], failed=(Failed(why="no kernel", arm="fused"),))
    advice = of_replays(processes)
    assert (named(advice, "bf16").verdict, named(advice, "bf16").why) == ("failed", "out of memory")
    assert (named(advice, "fused").verdict, named(advice, "fused").why) == ("failed", "no kernel")
    assert named(advice, "cudnn_search").verdict == "not applicable"
    assert named(advice, "tf32").verdict == "not tried"
    assert advice.not_tried == (
        "cuDNN, flash: no convolution ran",
        "tf32: the process ended ahead of its windows",
    )


def test_an_arm_that_failed_after_windows_of_one_launch_is_not_advised() -> None:
    processes = launches({"fused": 1.3})
    processes[2] = replace(processes[2], failed=(Failed(why="out of memory", arm="fused"),))
    assert named(of_replays(processes), "fused").verdict == "failed"


def test_a_result_that_differs_is_never_advised() -> None:
    check = Check(arm="tf32", losses=(1.0, 1.0), gradient=0.2, band=0.01)
    advice = of_replays(with_checks(launches({"tf32": 1.3}), check))
    row = named(advice, "tf32")
    assert (row.verdict, row.result) == ("result differs", "differs by 0.2")
    assert advice.do == ()


def test_an_arm_that_does_other_work_is_never_advised() -> None:
    other = Arm(arm="odd", label="odd", state="tried", keeps="work")
    advice = of_replays(with_arm(launches({"odd": 1.3}), other))
    assert (named(advice, "odd").verdict, named(advice, "odd").result) == ("other work",) * 2


def test_a_winner_whose_result_nobody_knows_says_so() -> None:
    advice = of_replays(with_checks(launches({"fused": 1.3}), Check(arm="fused")))
    assert advice.do == ("fused: AdamW(..., fused=True) (result not checked)",)


def test_a_script_that_is_not_deterministic_is_noted() -> None:
    null = Check(arm=BASELINE, losses=(1.0, 1.0), gradient=1e-6, band=1e-2)
    advice = of_replays(with_checks(launches({"fused": 1.3}), null))
    assert any("not deterministic" in note for note in advice.notes)
    assert named(advice, "fused").result == "same step"


def test_input_that_the_step_waits_for() -> None:
    processes = [replay({"fused": 1.1}, wait_share=share) for share in (0.30, 0.31, 0.32)]
    advice = of_replays(processes)
    assert advice.wait_share is not None
    assert advice.wait_share.mid == pytest.approx(0.31, abs=0.005)
    assert advice.wait_share.low is not None
    assert advice.wait_share.high is not None
    assert 0.27 < advice.wait_share.low < 0.31 < advice.wait_share.high < 0.35
    row = named(advice, "input")
    assert row.verdict == "upper bound"
    assert row.gain is not None
    assert row.gain.mid == pytest.approx(1 / 0.69, rel=0.01)
    assert "input takes 31 %" in advice.bound
    assert any("until input is faster" in note for note in advice.notes)


def test_steps_that_wait_for_their_batches_tell_nothing_of_input() -> None:
    advice = advise([replay({"fused": 1.1}, wait_share=0.3)], (), (), (), cached=False)
    assert (advice.cached_s, advice.wait_share) == (None, None)
    assert [row.name for row in advice.rows] == ["fused"]


def test_a_script_without_a_loader_has_no_word_on_input() -> None:
    facts = Facts(anchor="optimizer", optimizers=("AdamW",))
    advice = of_replays([replay({"fused": 1.1}, facts=facts) for _ in range(3)])
    assert advice.wait_share is None
    assert advice.cached_s is None
    assert [row.name for row in advice.rows] == ["fused"]
    assert "input" not in advice.bound


def test_a_step_that_the_host_issues_to_its_end() -> None:
    assert "the host issues 97 % of the step" in of_replays([replay({}, issued=0.97)]).bound


def test_a_host_that_waits_for_values_is_said_to() -> None:
    advice = of_replays([replay({"reads": 1.1}, issued=0.97)])
    assert "issues 97 % of the step, waiting for values that it reads" in advice.bound
    away = Arm(arm="reads", label="reads", state="not applicable", why="no value is read back")
    assert of_replays([replay({}, arms=(away,), issued=0.97)]).bound.endswith("97 % of the step")


def test_on_a_processor_the_host_is_no_bound() -> None:
    advice = of_replays([replay({}, device="cpu", issued=1.0)] * 2)
    assert "host" not in advice.bound
    assert advice.device == "cpu"


def test_what_the_probe_takes() -> None:
    facts = msgspec.structs.replace(FACTS, hooks_s=0.001)
    share = of_replays([replay({}, facts=facts)]).probe_share
    assert share == pytest.approx(0.01, rel=0.1)


def test_memory_is_told_where_it_differs_by_much() -> None:
    peaks = {BASELINE: 1000 * MIB, "bf16": 700 * MIB, "fused": 1010 * MIB}
    advice = of_replays([replay({"bf16": 1.0, "fused": 1.0}, peaks=peaks)] * 2)
    assert named(advice, "bf16").memory_bytes == -300 * MIB
    assert named(advice, "fused").memory_bytes is None


def test_a_setting_against_the_same_round() -> None:
    pace = (1.0, 1.5, 2.0)  # of rounds
    processes = []
    for number, slower in enumerate(pace):
        processes.append(turn(BASELINE, number, 0.9 * STEP_S * slower))
        processes.append(turn("workers_8", number, STEP_S * slower / GAINS[number]))
        processes.append(turn(BASELINE, number, STEP_S * slower / 0.9))
    row = of_rounds(processes)
    assert row.verdict == "helps"
    assert row.gain is not None
    assert row.gain.mid == pytest.approx(1.2, rel=0.001)
    assert row.result == "same bits"


def test_a_round_whose_step_as_it_is_failed_is_left_out() -> None:
    processes = rounds("workers_8", (*GAINS, 9.0))
    processes[-2] = silent(BASELINE, 3)
    advice = advise((), processes, [WORKERS], ())
    gain = named(advice, "workers_8").gain
    assert gain is not None
    assert gain.mid == pytest.approx(1.2, rel=0.001)
    assert "a process of the command failed: the process never imported torch" in advice.notes
    alone = [one for one in processes if one.setting != BASELINE]
    assert of_rounds(alone).verdict == "not tried"


def test_memory_of_a_setting() -> None:
    processes = [
        replace(one, memory=Memory(device_bytes=MIB, host_bytes=(1 + at % 2) * 1000 * MIB))
        for at, one in enumerate(rounds("workers_8", GAINS))
    ]
    row = of_rounds(processes)
    assert (row.memory_bytes, row.host_bytes) == (None, 1000 * MIB)


OTHER_LOSSES = (2.0, 1.5, 1.2)


def test_a_setting_with_other_losses() -> None:
    pinned = Setting("pinned", "pinned memory", "bits")
    row = of_rounds(rounds("pinned", GAINS, keeps=OTHER_LOSSES), pinned)
    assert row.verdict == "result differs"
    assert row.result.startswith("differs by ")


def test_losses_of_other_workers_tell_nothing() -> None:
    advice = advise((), rounds("workers_8", GAINS, keeps=OTHER_LOSSES), [WORKERS], ())
    row = named(advice, "workers_8")
    assert (row.verdict, row.result) == ("helps", "not comparable")
    assert row.why == "other random numbers, or another order, in other worker processes"
    (line,) = advice.do
    assert line.endswith(f"(result not comparable: {row.why})")
    assert of_rounds(rounds("workers_8", GAINS)).result == "same bits"


def test_losses_of_other_workers_together_with_others() -> None:
    processes = rounds("workers_8", GAINS)
    together = rounds("together", GAINS, keeps=OTHER_LOSSES)
    row = advise((), processes, [WORKERS], together).together
    assert row is not None
    assert row.result == "not comparable"


def test_a_larger_batch_is_told_per_item_and_never_advised() -> None:
    batch = Setting("batch_2x", "batch 32 -> 64", "work")
    assert FACTS.loader is not None
    twice = msgspec.structs.replace(FACTS, loader=msgspec.structs.replace(FACTS.loader, batch=64))
    processes = [
        replace(one, facts=twice) if one.setting == batch.name else one
        for one in rounds("batch_2x", [gain / 2 for gain in GAINS])
    ]
    advice = advise((), processes, [batch], ())
    row = named(advice, "batch_2x")
    assert (row.verdict, row.result, row.why) == ("other work", "other work", "per item")
    assert row.gain is not None
    assert row.gain.mid == pytest.approx(1.2, rel=0.001)
    assert advice.do == ()


def test_arguments_that_change_the_batch_are_other_work() -> None:
    assert FACTS.loader is not None
    twice = msgspec.structs.replace(FACTS, loader=msgspec.structs.replace(FACTS.loader, batch=64))
    processes = [
        replace(one, facts=twice) if one.setting == "vary_1" else one
        for one in rounds("vary_1", [gain / 2 for gain in GAINS])
    ]
    row = of_rounds(processes, Setting("vary_1", "--batch 64", "step"))
    assert (row.verdict, row.why) == ("other work", "per item")


def test_other_work_of_an_unknown_number_of_items_is_told_per_step() -> None:
    facts = Facts(anchor="optimizer")
    processes = [replace(one, facts=facts) for one in rounds("vary_0", GAINS)]
    row = of_rounds(processes, Setting("vary_0", "--bf16", "work"))
    assert (row.verdict, row.why) == ("other work", "")
    assert row.gain is not None
    assert row.gain.mid == pytest.approx(1.2, rel=0.001)


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (replace(turn("workers_8", 0, 1.0), failed=(Failed(why="exit code 1"),)), "exit code 1"),
        (replace(turn("workers_8", 0, 1.0), live=()), "ahead of its first measured step"),
        (silent("workers_8"), "never imported torch"),
    ],
)
def test_a_setting_whose_process_failed(broken: Process, why: str) -> None:
    row = of_rounds([*rounds("workers_8", GAINS), broken])
    assert row.verdict == "failed"
    assert why in row.why


def with_facts(process: Process, **changes: object) -> Process:
    assert process.facts is not None
    return replace(process, facts=msgspec.structs.replace(process.facts, **changes))


VARY = Setting("vary_1", "--x", "step", arguments=("--x",))


@pytest.mark.parametrize(
    ("setting", "losses", "verdict"),
    [
        (WORKERS, LOSSES, "not set"),
        (WORKERS, (9.0, 9.0), "not set"),
        (VARY, LOSSES, "not set"),
        (VARY, (9.0, 9.0), "result differs"),  # it came by a way of its own
    ],
)
def test_what_did_not_take_is_never_a_gain(
    setting: Setting, losses: tuple[float, ...], verdict: str
) -> None:
    processes = [
        with_facts(one, unset="left as it was") if one.setting == setting.name else one
        for one in rounds(setting.name, GAINS, losses)
    ]
    row = of_rounds(processes, setting)
    assert row.verdict == verdict
    assert (row.why, row.gain) == ("left as it was", None) or verdict != "not set"


def test_an_evaluation_between_steps_is_told_apart() -> None:
    found = [replace(one, ended=End(9, 3, 0.1)) for one in launches({"fused": 1.5})]
    (note,) = (note for note in of_replays(found).notes if "evaluation" in note)
    assert note == (
        "evaluations between steps, no part of them, take 50 % of the time: a step 1.50 times as"
        " fast is a training 1.20 times as fast"
    )
    (note,) = of_replays([replace(one, ended=End(9, 1)) for one in launches({})]).notes
    assert note == "an evaluation came between steps, and is no part of them"
    assert not of_replays(launches({"fused": 1.5})).notes


@pytest.mark.parametrize(
    ("workers", "starts_s", "bound"), [(4, 0.9, 1.9), (4, 0.01, None), (0, 0.9, None)]
)
def test_workers_that_start_anew_are_an_upper_bound(
    workers: int, starts_s: float, bound: float | None
) -> None:
    loader = Loader(workers=workers, batch=32, batches=10, starts_s=starts_s)
    advice = of_replays([with_facts(one, loader=loader) for one in launches({})])
    gains = [row.gain.mid for row in advice.rows if row.name == "persistent" and row.gain]
    assert gains == ([] if bound is None else [pytest.approx(bound, rel=0.01)])


def test_work_of_the_host_is_an_upper_bound() -> None:
    shares = ({"a.py:7": 0.2, "a.py:9": 0.3}, {"a.py:7": 0.2}, {"a.py:7": 0.5})
    found = [with_facts(one, host=host) for one, host in zip(launches({}), shares, strict=False)]
    rows = {row.label: row.gain for row in of_replays(found).rows if row.name == "host"}
    assert rows == {"work outside of torch at a.py:7": pytest.approx((1.25, None, None))}


def test_a_loader_that_another_thread_reads_is_noted() -> None:
    loader = Loader(threaded=True)
    advice = of_replays([with_facts(one, loader=loader) for one in launches({})])
    assert "another thread of the script reads the loader" in advice.notes[0]


def test_settings_that_were_not_tried() -> None:
    pinned = Setting("pinned", "pinned memory", "bits", why_not="is on already")
    advice = advise((), (), [pinned, WORKERS], ())
    assert {row.verdict for row in advice.rows} == {"not tried"}
    assert advice.not_tried == (
        "pinned memory: is on already",
        "num_workers 4 -> 8: no process was started with it",
    )


def test_all_that_help_together() -> None:
    together = rounds("together", (1.5, 1.51, 1.52), keeps=(2.0, 1.5, 1.001))
    row = advise((), (), (), together).together
    assert row is not None
    assert (row.verdict, row.result) == ("helps", "same course")
    assert advise((), (), (), ()).together is None


def test_all_together_keep_no_more_than_each_does() -> None:
    """Losses are of steps ahead of those with switches."""
    near = Check(arm="tf32", gradient=1e-3, band=1e-2)
    processes = with_checks(launches({"tf32": 1.3, "fused": 1.1}), near)
    row = advise(processes, (), (), rounds("together", (1.4, 1.41, 1.42))).together
    assert row is not None
    assert row.result == "same step"


def test_of_changes_that_exclude_one_another_the_best_alone_is_done() -> None:
    gains = {"attention_cudnn": 1.2, "attention_flash": 1.3, "fused": 1.1, "tf32": 1.4}
    advice = of_replays(launches(gains))
    assert [row.name for row in winners(advice.rows)] == ["tf32", "attention_flash", "fused"]


def test_nothing_was_said_at_all() -> None:
    advice = of_replays([silent()])
    assert advice.step_s is None
    assert advice.rows == ()
    assert advice.notes == ("a process of the command failed: the process never imported torch",)


def test_without_a_replay_the_step_is_that_of_turns() -> None:
    advice = advise((), rounds("workers_8", GAINS), [WORKERS], ())
    assert advice.step_s is not None
    assert advice.step_s.mid == pytest.approx(STEP_S)
    assert advice.launches == 3


def test_the_answer_is_json() -> None:
    advice = advise(launches({"fused": 1.1}), rounds("workers_8", GAINS), [WORKERS], ())
    read = json.loads(json.dumps(asdict(advice), allow_nan=False))
    assert len(read["step_s"]) == 3
    assert read["rows"][0]["gain"][0] == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize(
    ("planted", "noise", "least", "most"),
    [(1.0, 0.01, 0, 7), (1.0, 0.002, 0, 7), (1.02, 0.002, 285, 300)],  # 7: 3 are 1 %
)
def test_nothing_seldom_helps_and_a_planted_gain_is_found(
    planted: float, noise: float, least: int, most: int
) -> None:
    """Of 300 advices, by four launches of seven changes that differ by the noise."""
    chance = random.Random(3)
    found = 0
    for _ in range(300):
        gains = [[chance.lognormvariate(0, noise) for _ in range(7)] for _ in range(4)]
        replays = [
            replay({"fused": planted * fused, **{f"arm_{n}": arm for n, arm in enumerate(others)}})
            for fused, *others, _ in gains
        ]
        rows = advise(replays, rounds("workers_8", [own[-1] for own in gains]), [WORKERS], ()).rows
        helping = {row.name for row in rows if row.verdict == "helps"}
        found += "fused" in helping if planted > 1 else bool(helping)
    assert least <= found <= most, found


def test_an_interval_that_tells_nothing_is_no_answer() -> None:
    row = of_rounds(rounds("workers_8", (1.5, 2.5)))
    assert (row.verdict, row.why) == ("undecided", "too few launches for what they differ by")


def test_a_step_that_cannot_be_taken_again_is_not_called_chance() -> None:
    why = "its batches come of random numbers that cannot be put back"
    null = Check(arm=BASELINE, losses=(1.0, 1.1), why=why)
    advice = of_replays(with_checks(launches({"fused": 1.3}), null))
    assert advice.notes == (f"the same step once more is another: {why}",)
