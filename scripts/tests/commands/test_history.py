"""`gpulift history` as a user calls it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gpulift import cli
from gpulift.gate import history
from gpulift.ground.errors import FAILED, NOTHING_RAN, OK, USAGE
from tests import sample
from tests.gate.test_gate_of_commands import METRIC, RUN, evidence, gate, project
from tests.gate.test_history import noisy, points
from tests.gate.test_repositories import git

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
    assert "worse        a/b: 1.00 s -> 1.10 s; after/before 1." in out
    assert "; from 2026-01-13 c13 on\n" in out
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
    assert "better       a/b: " in capfd.readouterr().out
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
    copied = shutil.copytree(folder, project.parent / "copied", copy_function=shutil.copyfile)
    assert call("add", folder, "--branch", "speed") == OK
    assert call("add", str(copied), "--branch", "speed") == OK
    assert "0 points added, 1 in all" in capfd.readouterr().out
    assert call("show", "python3/step", "--branch", "speed") == OK
    head = git(project, "rev-parse", "--short=7", "HEAD")
    assert f" ms  {head}  " in capfd.readouterr().out
    assert not (project / "gpulift-history").exists()
    (project / "speed").write_text("1.1", "utf-8")
    for arguments, commit in (((), f"{head}-dirty"), (("--head", "HEAD"), head)):
        assert gate("--base", "HEAD~1", *arguments, "--metric", METRIC, *RUN) == FAILED
        evidences = evidence(capfd.readouterr().out)
        assert call("add", evidences, "--in", commit) == OK
        (point,) = history.read(Path(commit))
        assert point.commit == commit
    document = json.loads(Path(folder, "gate.json").read_text("utf-8"))
    for ended in ({}, {"ended_at": ""}, {"ended_at": "soon"}):
        Path(copied, "gate.json").write_text(json.dumps({**document, "result": ended}), "utf-8")
        assert call("add", str(copied)) == USAGE
        assert "does not say when it was measured: it was broken off" in capfd.readouterr().err


def test_calls_at_once_lose_no_point(here: Path) -> None:
    for day in range(1, 5):
        records = sample.launches(
            1, "a/b", {}, [sample.arm("x", 1e-3)], started_at=f"2026-01-0{day}T00:00:00Z"
        )
        sample.write(here / f"2026-01-0{day}-abc1234", records)
    command = [sys.executable, "-m", "gpulift", "history", "add"]
    calls = [subprocess.Popen([*command, str(run)]) for run in here.glob("2026-*")]
    assert [one.wait() for one in calls] == [OK] * 4
    assert len(history.read(here / "gpulift-history")) == 4


def test_rows_are_a_page_of_charts(here: Path, capfd: Shown) -> None:
    held = [*noisy(1.0, 12, 1), *noisy(1.1, 6, 2)]
    hostile = "<script>\x1b[31m[bold]"
    better = [replace(one, row=hostile) for one in points(held, higher=True)]
    history.write(here / "gpulift-history", [*better, *points(held, unit="ms")])
    assert call("show", "--html", "rows.html") == OK
    page = Path("rows.html").read_text("utf-8")
    assert page.count("<svg") == 2
    assert "<script" not in page
    assert "http" not in re.sub("xmlns[^ ]*|http-equiv", "", page), "it needs no other file"
    assert page.index("<b>a/b</b>") < page.index("<b>&lt;script&gt;"), "what became worse is first"
    assert page.count('<span class="mark">worse</span>') == 1
    assert call("show", "a/b", "--html", "row.html") == OK
    assert Path("row.html").read_text("utf-8").count("<svg") == 1
    assert call("show", hostile) == OK
    assert call("alerts") == FAILED
    out = capfd.readouterr().out
    assert "\x1b" not in out
    assert out.count("<script>\\x1b[31m[bold]") == 3
