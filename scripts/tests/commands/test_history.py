"""`gpulift history` as a user calls it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from gpulift import cli
from gpulift.gate import history
from gpulift.ground.errors import FAILED, NOTHING_RAN, OK, USAGE
from tests import sample
from tests.gate.test_gate_jobs_command import METRIC, RUN, evidence, gate, project
from tests.gate.test_history import noisy, points

__all__ = ["project"]  # a fixture
pytestmark = pytest.mark.world
Shown = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*arguments: str) -> int:
    return cli.main(["history", *arguments])


def keep(values: list[float]) -> None:
    history.write(Path("gpulift-history"), points(values, unit="s"))


def test_runs_are_added_once_and_shown(here: Path, capfd: Shown) -> None:
    arms = [sample.arm("base", 2e-3), sample.arm("fast", 1e-3)]
    for day in (1, 2):
        records = sample.launches(3, "a/b", {"n": 1}, arms, started_at=f"2026-01-0{day}T00:00:00Z")
        sample.write(here / "runs" / f"2026-01-0{day}-abc1234", records)
    assert call("add", "runs") == OK
    assert call("add", "runs/2026-01-02-abc1234") == OK
    assert capfd.readouterr().out == "4 points added, 4 in all\n0 points added, 4 in all\n"
    assert call("show") == OK
    shown = capfd.readouterr().out
    assert "a/b/n:1/fast" in shown
    assert "insufficient: 2 of 10 points" in shown
    assert call("show", "a/b/n:1/fast") == OK
    assert "1.00 ms  abc1234  nvidia-h200" in capfd.readouterr().out


def test_a_row_that_became_worse_is_an_alert(here: Path, capfd: Shown) -> None:
    keep([*noisy(1.0, 12, 1), *noisy(1.1, 6, 2)])
    assert call("alerts") == FAILED
    out = capfd.readouterr().out
    assert "worse: a/b from 2026-01-13 c13 on: 1.00 s -> 1.10 s, 1." in out
    assert "1 alerts in 1 rows" in out
    assert call("alerts", "--last", "3") == OK, "it is of long ago"
    assert call("alerts", "--filter", "-a/b") == NOTHING_RAN
    capfd.readouterr()
    assert call("alerts", "--json") == FAILED
    assert json.loads(capfd.readouterr().out)[0]["place"] == 12


def test_a_row_that_became_better_is_none(here: Path, capfd: Shown) -> None:
    keep([*noisy(1.0, 12, 1), *noisy(0.9, 6, 2)])
    assert call("alerts") == OK
    assert call("show", "a/b", "--picture", "row.svg") == OK
    assert "better: a/b from" in capfd.readouterr().out
    assert "<svg" in Path("row.svg").read_text("utf-8")


def test_too_few_points_are_insufficient(here: Path, capfd: Shown) -> None:
    keep([1.0] * 9)
    assert call("alerts") == NOTHING_RAN
    assert "1 insufficient (fewer than 10 points)" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show",), "there is no history yet"),
        (("show", "a/x"), "'a/x' is no row of the history; near it: a/b"),
        (("show", "--picture", "x.svg"), "--picture draws one row: name it"),
        (("add", "nothing"), "there is no such file or folder"),
        (("show", "--branch", "b"), "is in no git repository"),
    ],
)
def test_wrong_calls_are_one_line(
    here: Path, capfd: Shown, arguments: tuple[str, ...], said: str
) -> None:
    if arguments != ("show",):
        keep([1.0])
    assert call(*arguments) == USAGE
    assert said in capfd.readouterr().err


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_head_of_a_gate_is_a_point_in_a_branch(
    project: Path, capfd: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    assert gate("--base", "HEAD~1", "--metric", METRIC, *RUN) == FAILED
    folder = evidence(capfd.readouterr().out)
    assert call("add", folder, "--branch", "speed") == OK
    assert call("show", "python3/step", "--branch", "speed") == OK
    assert " ms  this checkout (" in capfd.readouterr().out
    assert not (project / "gpulift-history").exists()
