"""One process of a user's command."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpulift.advise import following, process
from gpulift.advise.evidence import BASELINE, Process
from gpulift.advise.process import Command, Ran, require_open
from gpulift.advise.settings import AS_IT_IS, Setting
from gpulift.ground.errors import GpuliftError

pytestmark = pytest.mark.world

STAND_IN = Path(__file__).with_name("stand_in.py")
REPLAY: Mapping[str, Any] = {"mode": "replay", "only": None, "without": []}
LONG_S = 60.0


def command(way: str = "", *more: str, **changes: Any) -> Command:
    arguments = (sys.executable, str(STAND_IN), way, *more)
    options: dict[str, Any] = {"environment": {**os.environ}, "silence_s": LONG_S}
    return Command(arguments, **options | changes)


def ran(job: Command, setting: Setting = AS_IT_IS, plan: Mapping[str, Any] = REPLAY) -> Ran:
    return process.run(job, setting, 1, plan, lambda _: None)


def started(folder: Path) -> dict[str, Any]:
    """The environment, the plan, the arguments and the child of the only process."""
    (line,) = (folder / "started.jsonl").read_text("utf-8").splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def require_gone(pid: int) -> None:
    try:
        psutil.wait_procs([psutil.Process(pid)], timeout=LONG_S)
        left = psutil.Process(pid).status()
    except psutil.NoSuchProcess:
        return
    assert left == psutil.STATUS_ZOMBIE


def test_a_process_that_says_all(tmp_path: Path) -> None:
    phases: list[str] = []
    job = command("", str(tmp_path))
    told = process.run(job, AS_IT_IS, 1, REPLAY, phases.append)
    assert (told.code, told.why, told.culprit, told.interrupted) == (0, "", "", False)
    assert (told.process.setting, told.process.turn) == (BASELINE, 1)
    assert [arm for arm in told.process.arms] == ["fused", "tf32"]
    assert phases[0] == "measures steps as they are"
    assert phases[-1] == told.phase == f"block 2 of 2: {BASELINE}"
    require_gone(started(tmp_path)["child"])


def test_what_a_setting_brings(tmp_path: Path) -> None:
    setting = Setting(
        "x",
        "x",
        "bits",
        told={"loader": {"num_workers": 2}},
        environment={"LD_PRELOAD": ""},
        arguments=("--bf16",),
    )
    assert ran(command("", str(tmp_path)), setting, {"mode": "turn"}).process.losses
    found = started(tmp_path)
    ahead = {"environment": {"LD_PRELOAD": ""}, "arguments": ["--bf16"]}
    assert found["plan"] == {"mode": "turn", "loader": {"num_workers": 2}, **ahead}
    assert (found["LD_PRELOAD"], found["arguments"]) == ("", ["--bf16"])


@pytest.mark.parametrize("theirs", ["", "/theirs:/others"])
def test_the_users_environment_is_kept(tmp_path: Path, theirs: str) -> None:
    ran(command("", str(tmp_path), environment={"PYTHONPATH": theirs, "MINE": "1"}))
    found = started(tmp_path)
    assert found["PYTHONPATH"] == ":".join([str(process.INJECT), *([theirs] if theirs else [])])
    assert (found["MINE"], found["WANDB_MODE"]) == ("1", "disabled")
    assert "HOME" not in found


def test_a_choice_of_the_user_stays(tmp_path: Path) -> None:
    ran(command("", str(tmp_path), environment={"WANDB_MODE": "offline"}))
    assert started(tmp_path)["WANDB_MODE"] == "offline"


def test_a_script_that_fails_by_itself(capfd: pytest.CaptureFixture[str]) -> None:
    told = ran(command("code 3"))
    assert (told.code, told.why) == (3, "it ended with code 3: CUDA error: none left")
    assert capfd.readouterr() == ("", "")


def test_what_a_command_writes_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    ran(command("code 3", verbose=True))
    out, err = capfd.readouterr()
    assert out == ""
    assert "what it prints\n" in err
    assert "  CUDA error: none left\n" in err


def test_a_process_without_torch() -> None:
    told = ran(command("no torch"))
    assert told.code == 0
    assert "imported torch" in told.why
    assert told.process.hello is None


def test_a_script_that_ends_too_soon() -> None:
    assert ran(command("too short")).why == "the script ended by itself after 3 steps"


@pytest.mark.parametrize(
    ("way", "why"),
    [
        ("killed in fused", "it ended with signal 9"),
        ("fails in fused", "it ended with code 1: RuntimeError: no kernel"),
    ],
)
def test_the_arm_in_which_a_process_died(way: str, why: str) -> None:
    told = ran(command(way))
    assert (told.culprit, told.why) == ("fused", why)


def test_a_step_as_it_is_is_no_culprit() -> None:
    assert ran(command(f"killed in {BASELINE}")).culprit == ""


def test_a_process_that_hangs(tmp_path: Path) -> None:
    told = ran(command("hangs in tf32", str(tmp_path), silence_s=1.0))
    assert (told.culprit, told.code, told.why) == ("tf32", None, "it said nothing for 1 s")
    ahead = ran(command("hangs ahead", silence_s=1.0))
    assert ahead.why == f"it said nothing for 1 s, and {process.NO_STEP}"
    require_gone(started(tmp_path)["child"])


def test_a_launcher_that_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "ENDS_WITHIN_S", 0.1)
    told = ran(command("goes on", str(tmp_path)))
    assert (told.code, told.why) == (None, "")
    assert told.process.ended is not None
    require_gone(started(tmp_path)["child"])


def test_an_interruption(tmp_path: Path) -> None:
    told = ran(command("interrupts in fused", str(tmp_path)))
    assert told.interrupted
    assert (told.why, told.culprit, told.process.failed) == ("", "", ())
    assert told.process.windows
    require_gone(started(tmp_path)["child"])


def test_a_training_that_goes_on(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    heard: list[Process] = []
    job = command("trains on", str(tmp_path), passes=True)
    told = process.run(job, AS_IT_IS, 0, REPLAY, lambda _: None, {"end": heard.append})
    assert capfd.readouterr().out == "trained\n"
    assert (told.code, told.why) == (4, "")
    assert [one.ended is not None for one in heard] == [True]
    assert "WANDB_MODE" not in started(tmp_path)


def test_a_training_goes_on_whatever_fails_here(capfd: pytest.CaptureFixture[str]) -> None:
    def fail(_: Process) -> None:
        raise GpuliftError("no space")

    job, on = command("trains on", passes=True), {"end": fail}
    told = process.run(job, AS_IT_IS, 0, REPLAY, lambda _: None, on)
    out, err = capfd.readouterr()
    assert (told.code, out, err) == (4, "trained\n", "gpulift: warning: no space\n")


def test_a_training_gets_an_interruption_and_may_save_itself() -> None:
    plan = {**REPLAY, "mode": "live"}
    told = ran(command("interrupts in fused", passes=True), plan=plan)
    assert told.interrupted
    assert told.code is not None


def test_ranks_on_several_hosts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(GpuliftError, match="several hosts"):
        ran(command("several hosts", str(tmp_path)))
    require_gone(started(tmp_path)["child"])


def test_a_command_that_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(GpuliftError, match="cannot be started: Permission denied"):
        ran(Command((str(tmp_path),), {}, LONG_S))


@pytest.mark.parametrize(
    "arguments",
    [
        ("python", "-I", "train.py"),
        ("/usr/bin/python3.12", "-uE", "train.py"),
        ("python3", "-X", "dev", "-W", "error", "-S", "-m", "train"),
    ],
)
def test_a_python_that_takes_no_probe(arguments: tuple[str, ...]) -> None:
    with pytest.raises(GpuliftError, match=r"python -[IES] ignores"):
        require_open(Command(arguments, {}, LONG_S))


@pytest.mark.parametrize(
    "arguments",
    [
        ("python", "train.py", "-I"),
        ("python", "-m", "train", "-S"),
        ("python", "-c", "import train", "-E"),
        ("python", "-uX", "Importtime", "train.py"),
        ("python", "-WIgnore", "train.py"),
        ("python",),
        ("./train.sh", "-I"),
    ],
)
def test_a_command_that_takes_it(arguments: tuple[str, ...]) -> None:
    require_open(Command(arguments, {"WORLD_SIZE": "1"}, LONG_S))
    with pytest.raises(GpuliftError, match=r"WORLD_SIZE=2: .* the launcher"):
        require_open(Command(arguments, {"WORLD_SIZE": "2"}, LONG_S))
    for given in ("two", "0", "-1", "1.0"):
        with pytest.raises(GpuliftError, match=f"WORLD_SIZE={given} is no number of ranks"):
            require_open(Command(arguments, {"WORLD_SIZE": given}, LONG_S))
