"""The order of processes, and what is kept of those that fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from gpulift.advise import process, rounds
from gpulift.advise.evidence import BASELINE, TOGETHER, Failed, Process
from gpulift.advise.process import Command, Ran
from gpulift.advise.progress import Progress
from gpulift.advise.rounds import Asked, Measured
from gpulift.advise.settings import Setting
from gpulift.ground.errors import FAILED, INCONCLUSIVE, GpuliftError
from tests.advise.made import STEP_S, replay, silent, turn

JOB = Command(("train",), {}, 60.0)
WORKERS, BATCH = "workers_8", "batch_2x"
GAINS = {BASELINE: 1.0, WORKERS: 1.5, BATCH: 0.6, TOGETHER: 1.8, "vary_1": 1.2, "vary_2": 1.0}
Answer = Callable[[int, Ran], Ran]


class Started:
    """In place of processes: what each would say at once."""

    def __init__(self, gains: Mapping[str, float], answers: Mapping[int, Answer]) -> None:
        self.gains, self.answers = gains, answers
        self.settings: list[Setting] = []
        self.turns: list[int] = []
        self.plans: list[Mapping[str, Any]] = []

    def __call__(
        self,
        command: Command,
        setting: Setting,
        number: int,
        plan: Mapping[str, Any],
        on_phase: Callable[[str], None],
        on: Mapping[str, Callable[[Process], None]],
    ) -> Ran:
        self.settings.append(setting)
        self.turns.append(number)
        self.plans.append(plan)
        without = plan.get("without", ())
        arms = {name: gain for name, gain in self.gains.items() if name not in without}
        if plan["mode"] == "turn":
            step_s = STEP_S / GAINS.get(setting.name, 1.0)
            said = turn(setting.name, number, step_s)
        else:
            said = replace(replay(arms, wait_share=0.3), turn=number)
        answer = self.answers.get(len(self.settings))
        ran = Ran(said, 20.0, 0)
        ran = answer(len(self.settings), ran) if answer else ran
        going = replace(ran.process, ended=None)
        for count in (1, 2, None) if "window" in on else ():
            on["window"](replace(going, windows=going.windows[:count]))
        if "end" in on and ran.process.ended is not None:
            on["end"](ran.process)
        return ran

    @property
    def names(self) -> list[str]:
        return [one.name for one in self.settings]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Started]:
    def made(gains: Mapping[str, float] = {}, **answers: Answer) -> Started:
        by_number = {int(name.removeprefix("at_")): answer for name, answer in answers.items()}
        started = Started(gains, by_number)
        monkeypatch.setattr(process, "run", started)
        return started

    return made


def measured(
    only: str = "workers", on_end: Callable[[Measured], None] = lambda _: None, **asked: Any
) -> Measured:
    options: dict[str, Any] = {"launches": 2, "only": tuple(filter(None, only.split(",")))} | asked
    return rounds.measure(Asked(JOB, **options), Progress(shows_output=True), on_end)


def died(arm: str = "", why: str = "it ended with signal 9") -> Answer:
    def answer(_: int, ran: Ran) -> Ran:
        failed = (Failed(why=why), *([Failed(why="RuntimeError", arm=arm)] if arm else []))
        return replace(ran, code=-9, process=replace(ran.process, ended=None, failed=failed))

    return answer


def interrupted(steps: bool = True) -> Answer:
    def answer(_: int, ran: Ran) -> Ran:
        said = replace(ran.process, ended=None, live=ran.process.live if steps else ())
        return replace(ran, code=None, process=said, interrupted=True)

    return answer


def test_replays_come_first_and_then_rounds(
    start: Callable[..., Started], capsys: pytest.CaptureFixture[str]
) -> None:
    started = start()
    found = measured("workers,batch_2x", launches=3)
    assert started.names == [
        *[BASELINE] * 3,
        *(BASELINE, WORKERS, BATCH),
        *(BATCH, WORKERS, BASELINE),
        *(BASELINE, WORKERS),
    ]
    assert started.turns == [0, 1, 2, 0, 0, 0, 1, 1, 1, 2, 2]
    assert [plan["mode"] for plan in started.plans] == ["replay"] * 3 + ["turn"] * 8
    assert started.plans[0] == {
        "mode": "replay",
        "only": ["workers", "batch_2x"],
        "without": [],
        "flat_s": 120.0,
        "live_s": 2.0,
        "windows_s": 20.0,
    }
    assert [plan["mode"] for plan in started.plans if plan.get("rounded")] == ["turn"]
    assert started.plans[8]["rounded"]
    assert not found.interrupted
    err = capsys.readouterr().err
    assert "about 11 more processes, 2.9 min; and 6 of all that helps together" in err
    assert "process 11 of about 12: num_workers 4 -> 8\n" in err


def told_rows(err: str) -> list[str]:
    lines = [line.removeprefix("gpulift: so far, process ") for line in err.splitlines()]
    return [line for line in lines if line[0].isdecimal()]


def test_rows_are_told_as_they_come(
    start: Callable[..., Started], capsys: pytest.CaptureFixture[str]
) -> None:
    changed = replay({"fused": 1.3, "tf32": 1.0}, wait_share=0.3)
    start({"fused": 1.25}, at_2=lambda _, ran: replace(ran, process=changed))
    measured("fused,tf32,workers")
    told = told_rows(capsys.readouterr().err)
    assert told[0].startswith("1, first windows: input: an infinitely fast loader 1.44×")
    assert told[1] == "1, first windows: fused 1.25×"
    told = [line for line in told if not line.startswith("1")]
    assert told[0].startswith("2, first windows: tf32 1.000×"), "of one under way: new rows alone"
    assert told[1].startswith("2: input: an"), "one that is over: what has changed, too"
    assert told[1].endswith("1.431× [1.422, 1.441], fused 1.27×"), "an interval where it tells"
    assert "4: num_workers 4 -> 8 1.50×" in told, "one round"
    assert not any("helps" in line or "undecided" in line for line in told)
    assert len(told) == len(set(told)), "nothing twice"


def test_a_step_that_the_host_paces_is_told_once(
    start: Callable[..., Started], capsys: pytest.CaptureFixture[str]
) -> None:
    paced = replay({"fused": 1.25}, issued=0.97)
    start({}, at_1=lambda _, ran: replace(ran, process=paced))
    measured("fused")
    err = capsys.readouterr().err
    assert err.count("the host sets the pace") == 1
    assert err.index("the host sets the pace") < err.index("process 2")


def test_all_is_tried_where_nothing_is_named(start: Callable[..., Started]) -> None:
    started = start()
    found = measured("", launches=1)
    assert started.plans[0]["only"] is None
    tried = [one.name for one in found.settings if not one.why_not]
    assert started.names == [BASELINE, BASELINE, *tried]
    assert {"workers_8", "pinned", "compile_all", "batch_2x"} <= set(tried)


def test_a_setting_that_helped_in_no_round_is_not_gone_on_with(
    start: Callable[..., Started],
) -> None:
    started = start()
    found = measured("workers", launches=4, vary=(("--fast",), ("--slow",)))
    again = [BASELINE, "vary_1", WORKERS]
    assert started.names[4 + 2 * 4 :][:6] == [*again, *reversed(again)]
    row = next(row for row in found.advice().rows if row.name == "vary_2")
    assert row.verdict in ("hurts", "undecided", "no change")


def test_nothing_more_is_started_where_no_setting_helped(start: Callable[..., Started]) -> None:
    started = start()
    measured("expandable_segments", launches=4)
    assert started.names == [BASELINE] * 4 + [BASELINE, "expandable_segments"] + [
        *("expandable_segments", BASELINE)
    ]


def test_all_that_helps_is_measured_together(start: Callable[..., Started]) -> None:
    started = start({"fused": 1.25})
    found = measured("fused,workers")
    assert started.names[-4:] == [BASELINE, TOGETHER, TOGETHER, BASELINE]
    assert started.turns[-4:] == [2, 2, 3, 3]
    setting = started.settings[-2]
    assert setting.told == {"switches": ["fused"], "loader": {"num_workers": 8}}
    assert len(found.together) == 4
    together = found.advice().together
    assert together is not None
    assert together.gain is not None
    assert together.gain.mid == pytest.approx(1.8)


def test_one_setting_that_helps_was_measured_already(start: Callable[..., Started]) -> None:
    started = start()
    assert measured().advice().rows[-1].verdict == "helps"
    assert TOGETHER not in started.names


def test_one_switch_that_helps_is_measured_in_live_steps(start: Callable[..., Started]) -> None:
    started = start({"fused": 1.25})
    measured("fused")
    assert started.names == [BASELINE] * 2 + [BASELINE, TOGETHER, TOGETHER, BASELINE]


def test_an_arm_that_kills_its_process_is_left_out(
    start: Callable[..., Started], capsys: pytest.CaptureFixture[str]
) -> None:
    started = start({"fused": 1.25, "tf32": 1.0}, at_1=died("fused"))
    found = measured("fused,tf32")
    assert [plan["without"] for plan in started.plans] == [[], ["fused"], ["fused"]]
    assert started.turns == [0, 0, 1]
    rows = {row.name: row for row in found.advice().rows}
    assert (rows["fused"].verdict, rows["fused"].why) == ("failed", "it ended with signal 9")
    assert rows["tf32"].verdict == "no change"
    assert not any("failed" in note for note in found.advice().notes)
    assert "fused: it ended with signal 9; the process is started once more" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("arm", ["", "fused"])
def test_a_script_that_counts_on_its_epochs_is_started_once_more(
    start: Callable[..., Started], capsys: pytest.CaptureFixture[str], arm: str
) -> None:
    def answer(_: int, ran: Ran) -> Ran:
        failed = (Failed(why="code 1: IndexError: 64"), Failed(why="IndexError", arm=arm))
        return replace(ran, code=1, process=replace(ran.process, ended=None, failed=failed))

    started = start({"fused": 1.25}, at_1=answer)
    found = measured("fused")
    assert [plan.get("ends_epochs") for plan in started.plans] == [None, True, True, *[None] * 4]
    assert [plan["without"] for plan in started.plans[:3]] == [[], [], []]
    assert len(found.replays) == 2
    assert (
        "IndexError: 64; the process is started once more, with epochs" in capsys.readouterr().err
    )


def test_a_script_that_dies_of_steps_that_are_taken_again(start: Callable[..., Started]) -> None:
    started = start(at_1=died(), at_2=died())
    with pytest.raises(GpuliftError, match="signal 9; that was while steps were taken again"):
        measured()
    assert started.names == [BASELINE] * 2


def test_several_arms_that_kill(start: Callable[..., Started]) -> None:
    answers = {"at_1": died("fused"), "at_2": died("tf32"), "at_4": died("tf32")}
    started = start({"fused": 1.25, "tf32": 1.0}, **answers)
    measured("fused,tf32")
    assert [plan["without"] for plan in started.plans] == [[], ["fused"], *[["fused", "tf32"]] * 2]


def test_a_setting_that_fails_is_not_started_again(start: Callable[..., Started]) -> None:
    started = start(at_4=died(why="it ended with code 1: out of memory"))
    found = measured("workers,batch_2x", launches=2)
    assert started.names[2:] == [BASELINE, WORKERS, BATCH, BATCH, BASELINE]
    row = next(row for row in found.advice().rows if row.name == WORKERS)
    assert (row.verdict, row.why) == ("failed", "it ended with code 1: out of memory")


def test_a_step_as_it_is_that_fails_once_is_taken_again_in_the_next_round(
    start: Callable[..., Started],
) -> None:
    started = start(at_3=died())
    found = measured()
    assert started.names[2:] == [BASELINE, WORKERS, WORKERS, BASELINE]
    assert "a process of the command failed: it ended with signal 9" in found.advice().notes


def ended(code: int, phase: str = "", **said: Any) -> Answer:
    """It ended with that code; what it said is changed."""

    def answer(_: int, ran: Ran) -> Ran:
        return replace(ran, code=code, phase=phase, process=replace(ran.process, **said))

    return answer


GONE: dict[str, Any] = {"ended": None, "facts": None, "failed": (Failed(why="the reason"),)}


@pytest.mark.parametrize(
    ("answer", "why", "code"),
    [
        (ended(3, **GONE), "the reason", FAILED),
        (ended(0, **GONE), "the reason", INCONCLUSIVE),  # too few steps
        (ended(0, **GONE, hello=None), "the reason", FAILED),  # no torch
        (ended(0, "waits", **GONE, hello=None), "the reason$", INCONCLUSIVE),  # no optimizer
        (ended(0, failed=(Failed(why="never flat"),)), "never flat", INCONCLUSIVE),
        (ended(0, facts=None), "its steps showed nothing to go by", INCONCLUSIVE),
    ],
)
@pytest.mark.parametrize("mode", ["replay", "launch", "live"])
def test_a_first_process_without_a_result(
    start: Callable[..., Started], answer: Answer, why: str, code: int, mode: str
) -> None:
    started = start(at_1=answer)
    with pytest.raises(GpuliftError, match=f"the command: {why}") as raised:
        measured(mode=mode)
    assert raised.value.exit_code == code
    assert started.names == [BASELINE]


def test_without_replays_the_first_round_goes_on_with_the_first_process(
    start: Callable[..., Started],
) -> None:
    started = start()
    found = measured(mode="launch", vary=(("--bf16",),))
    assert started.names[:6] == [BASELINE, "vary_1", WORKERS, WORKERS, "vary_1", BASELINE]
    assert started.turns[:6] == [0, 0, 0, 1, 1, 1]
    assert found.replays == []
    assert started.settings[1].arguments == ("--bf16",)
    assert started.names[-1] == BASELINE
    assert started.settings[-2].name == TOGETHER
    assert started.settings[-2].arguments == ("--bf16",)


def test_nothing_to_try_takes_no_rounds(start: Callable[..., Started]) -> None:
    started = start()
    measured("fused")
    assert started.names == [BASELINE] * 2


def test_a_training_that_goes_on(start: Callable[..., Started]) -> None:
    started = start({"fused": 1.25}, at_1=lambda _, ran: replace(ran, code=4))
    heard: list[int] = []
    found = measured("fused", mode="live", on_end=lambda one: heard.append(len(one.advice().rows)))
    assert started.plans[0]["mode"] == "live"
    assert started.names == [BASELINE]
    assert (len(found.replays), found.code, heard) == (1, 4, [1])
    assert found.advice().cached_s is None


@pytest.mark.parametrize("steps", [True, False])
def test_an_interruption_keeps_what_was_measured(
    start: Callable[..., Started], steps: bool
) -> None:
    started = start({"fused": 1.25}, at_4=interrupted(steps))
    found = measured("fused,workers")
    assert found.interrupted
    assert len(started.names) == 4
    assert (len(found.replays), len(found.turns)) == (2, 2 if steps else 1)
    verdicts = {row.name: row.verdict for row in found.advice().rows}
    assert verdicts["fused"] == "helps"
    assert verdicts[WORKERS] == ("undecided" if steps else "not tried")


@pytest.mark.parametrize("mode", ["replay", "launch", "live"])
def test_an_interruption_of_the_first_process(start: Callable[..., Started], mode: str) -> None:
    start(at_1=interrupted(steps=False))
    found = measured(mode=mode)
    assert found.interrupted
    assert not any(one.steps_s for one in found.processes)


def test_an_interruption_between_processes(start: Callable[..., Started]) -> None:
    def come(_: int, ran: Ran) -> Ran:
        raise KeyboardInterrupt

    start(at_2=come)
    assert measured().interrupted


def test_a_command_that_cannot_start_again_ends_it(start: Callable[..., Started]) -> None:
    def refused(_: int, ran: Ran) -> Ran:
        failed = (Failed(why="it ended with code 1: remove run.lock"),)
        return replace(ran, code=1, process=replace(silent(), failed=failed))

    started = start(at_2=refused)
    found = measured()
    assert found.hindered == "it ended with code 1: remove run.lock"
    assert len(started.names) == 2
    assert [bool(one.steps_s) for one in found.replays] == [True, False]
