"""`gpulift advise` as a user calls it, with a stand-in of the probe."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from gpulift import cli
from gpulift.ground import programs
from gpulift.ground.errors import FAILED, INCONCLUSIVE, INTERRUPTED, OK, USAGE
from gpulift.records.read import read_results
from tests.advise.test_process import STAND_IN, require_gone

pytestmark = pytest.mark.world

SHOWN = pytest.CaptureFixture[str]
QUICK = ("--launches", "2", "--only", "fused,tf32,workers,pinned,channels_last")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of the call."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(programs.JOB_ENVIRONMENT, raising=False)
    return tmp_path


def advise(*options: str, way: str = "", folder: str = "") -> int:
    more = [folder] if folder else []
    return cli.main(["advise", *options, "--", sys.executable, str(STAND_IN), way, *more])


def children(folder: Path) -> list[int]:
    lines = (folder / "started.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line)["child"] for line in lines]


def test_the_answer_on_one_screen(here: Path, capsys: SHOWN) -> None:
    assert advise(*QUICK) == OK
    out, err = capsys.readouterr()
    assert "step 100.0 ms" in out
    assert "fused" in out
    assert "helps: 1.250×" in out
    assert "num_workers 1 -> 2" in out
    assert "all that help, together" in out
    assert "do: num_workers 1 -> 2: DataLoader(..., num_workers=2)" in out
    assert "not tried: pinned memory of batches: the script trains on the processor" in out
    assert "not tried: channels last: no convolution ran" in out
    assert "WANDB_MODE" in err
    assert "process 1: as it is" in err
    (run,) = read_results([here / "gpulift-results"])
    assert f"records: {run.folder.relative_to(here)}" in err
    assert {record.technique for record in run.records} == {"advise/replay", "advise/turn"}
    kept = "".join(file.read_text("utf-8") for file in run.folder.iterdir())
    assert "stand_in" not in kept
    assert str(here) not in kept


def test_json(here: Path, capsys: SHOWN) -> None:
    assert advise(*QUICK, "--json", "--out", "mine") == OK
    answer = json.loads(capsys.readouterr().out)
    rows = {row["name"]: row for row in answer["rows"]}
    assert rows["fused"]["gain"][0] == pytest.approx(1.25)
    assert rows["workers_2"]["verdict"] == "helps"
    assert answer["together"]["gain"][0] == pytest.approx(1.875)
    assert len(list((here / "mine").iterdir())) == 2


def test_a_script_that_fails_by_itself(here: Path, capsys: SHOWN) -> None:
    assert advise(way="code 3") == FAILED
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("error: the command: it ended with code 3: CUDA error: none left\n")
    assert not (here / "gpulift-results").exists()


@pytest.mark.parametrize(
    ("way", "code", "said"),
    [
        ("no torch", FAILED, "no Python that reads PYTHONPATH imported torch"),
        ("no step", INCONCLUSIVE, "no optimizer of torch.optim took a step"),
        ("too short", INCONCLUSIVE, "the script ended by itself after 3 steps"),
        ("never flat", INCONCLUSIVE, "steps never took as long as those before"),
        ("several hosts", USAGE, "the command: several hosts"),
    ],
)
def test_scripts_of_which_nothing_can_be_said(
    capsys: SHOWN, way: str, code: int, said: str
) -> None:
    assert advise(way=way) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err.splitlines()[-1]


@pytest.mark.parametrize("how", ["killed", "fails"])
def test_an_arm_that_kills_the_process(capsys: SHOWN, how: str) -> None:
    assert advise(*QUICK, way=f"{how} in tf32") == OK
    out, err = capsys.readouterr()
    assert "failed: tf32: it ended with" in out
    assert "helps: 1.250×" in out
    assert "tf32: it ended with" in err


def test_a_setting_that_breaks_the_script(capsys: SHOWN) -> None:
    assert advise(*QUICK, way="breaks with workers") == OK
    out = capsys.readouterr().out
    assert "failed: num_workers 1 -> 2: it ended with code 1: no shared memory" in out


def test_a_lock_that_stays_ends_it(here: Path, capsys: SHOWN) -> None:
    assert advise(*QUICK, way="locks", folder=str(here)) == FAILED
    out, err = capsys.readouterr()
    assert "1 launch" in out
    assert err.splitlines()[-1].startswith("gpulift: error: the command cannot be started again")
    assert "the next: it ended with code 1: FileExistsError" in err


def test_a_process_that_hangs(here: Path, capsys: SHOWN) -> None:
    assert advise("--timeout", "1", way="hangs in as it is", folder=str(here)) == FAILED
    assert "it said nothing for 1 s" in capsys.readouterr().err
    for child in children(here):
        require_gone(child)


def test_an_interruption_shows_what_was_measured(here: Path, capsys: SHOWN) -> None:
    assert advise(*QUICK, way="interrupts with workers", folder=str(here)) == INTERRUPTED
    out, err = capsys.readouterr()
    assert "helps: 1.250×" in out
    assert "no process was started with it" in out
    assert "all that help" not in out
    assert err.endswith("gpulift: interrupted\n")
    assert len(children(here)) == 4
    for child in children(here):
        require_gone(child)
    (run,) = read_results([here / "gpulift-results"])
    assert len(run.records) == 3


def test_a_training_that_goes_on(capfd: SHOWN) -> None:
    assert advise("--live", way="trains on") == FAILED
    out, err = capfd.readouterr()
    assert "undecided: 1.25" in out
    assert "where its batch is there" not in out
    assert "trained\n" in out
    assert err.endswith("error: the command ended with code 4\n")
    assert "WANDB_MODE" not in err


def test_json_of_a_training_that_goes_on_is_all_of_the_output(capfd: SHOWN) -> None:
    advise("--live", "--json", way="trains on")
    out, err = capfd.readouterr()
    assert json.loads(out)["launches"] == 1
    assert "trained\n" in err


def test_what_is_set_ahead_of_a_process_alone(capsys: SHOWN) -> None:
    assert advise("--launch", "--only", "workers", "--vary", "--x 1", "--launches", "2") == OK
    out, err = capsys.readouterr()
    assert "num_workers 1 -> 2" in out
    assert "--x 1" in out
    assert "cached" not in out
    assert err.count("gpulift: process ") == 6


def test_the_command_gets_the_callers_environment(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = os.pipe()
    os.write(write, b"PYTHONPATH=theirs\0MINE=1\0")
    os.close(write)
    monkeypatch.setenv(programs.JOB_ENVIRONMENT, str(read))
    assert advise("--launches", "1", "--only", "pinned", folder=str(here)) == OK
    found = json.loads((here / "started.jsonl").read_text("utf-8").splitlines()[0])
    assert found["PYTHONPATH"].endswith(":theirs")
    assert found["MINE"] == "1"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--", ""), "name a command after --"),
        (("--out", "file/none", "--", "true"), "file/none: cannot be written"),
        (("--", "no-such-program"), "no-such-program: cannot be started: is not on PATH"),
        (("--only", "fuse", "--", "true"), "near: fused"),
        (("--only", ",", "--", "true"), "--only: name a change"),
        (("--live", "--within", "9m", "sh"), "leave out --launch, --vary and"),
        (("--within", "soon", "sh"), "--within soon"),
        (("--live", "--launch", "--", "true"), "leave out --launch, --vary and"),
        (("--live", "--vary", "--x", "--", "true"), "leave out --launch, --vary and"),
        (("--vary", "'", "--", "true"), "--vary ': No closing quotation"),
        (("--vary", " ", "--", "true"), "--vary: give what to append"),
        (("--launches", "0", "--", "true"), "--launches"),
        (("--timeout", "0", "--", "true"), "--timeout must be more than 0"),
        (("--out", ".", "--", "true"), "is there already and not empty"),
        (("--", "python3", "-I", "train.py"), "python -I ignores PYTHONPATH"),
        ((), "CMD"),
    ],
)
def test_usage(here: Path, capsys: SHOWN, arguments: tuple[str, ...], said: str) -> None:
    (here / "file").touch()
    assert cli.main(["advise", *arguments]) == USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
