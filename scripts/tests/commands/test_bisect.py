"""`gpulift bisect`: which commit is named, and when none is."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gpulift import cli
from gpulift.commands import gate_jobs
from gpulift.commands.bisect import SAME, UNTOLD, WORSE, half_of, search
from gpulift.ground.errors import INCONCLUSIVE, OK, USAGE, GpuliftError
from tests.gate.test_repositories import git

COMMITS = [f"{number}000000" for number in range(9)]


class Oracle:
    """Says of commits by their numbers what they are against any that is better."""

    def __init__(self, verdicts: str) -> None:
        self.verdicts = verdicts
        self.asked: list[tuple[int, int]] = []

    def __call__(self, base: str, head: str) -> str:
        numbers = (int(base[0]), int(head[0]))
        self.asked.append(numbers)
        base_is, head_is = (self.verdicts[number] for number in numbers)
        if "?" in (base_is, head_is):
            return UNTOLD
        return WORSE if head_is > base_is else SAME


@pytest.mark.parametrize("first", range(1, 9))
def test_the_first_slow_commit_is_named(first: int) -> None:
    oracle = Oracle("." * first + "x" * (9 - first))
    assert search(COMMITS, oracle, "0 and 8") == (COMMITS[first], COMMITS[first - 1])
    assert len(oracle.asked) <= 5
    assert oracle.asked[0] == (0, 8)
    assert first == 1 or oracle.asked[-1] == (first - 1, first)


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        (".........", "0 and 8: the second is no worse"),
        ("........?", "0 and 8: whether they differ cannot be told"),
        (".....?xxx", "it is one of 5000000, 6000000"),
        (".???????x", "it is one of 1000000, 2000000"),
    ],
)
def test_what_cannot_be_told_is_said(verdicts: str, said: str) -> None:
    with pytest.raises(GpuliftError, match=said) as error:
        search(COMMITS, Oracle(verdicts), "0 and 8")
    assert error.value.exit_code == INCONCLUSIVE


def test_a_commit_that_is_not_told_is_passed_by() -> None:
    assert search(COMMITS, Oracle("....?.xxx"), "") == (COMMITS[6], COMMITS[5])


def test_a_slow_down_in_steps_is_not_blamed_on_one() -> None:
    def judge(base: str, head: str) -> str:
        return WORSE if int(head[0]) - int(base[0]) > 3 else SAME

    with pytest.raises(GpuliftError, match="it came in several steps, or by chance"):
        search(COMMITS, judge, "")


def test_half_of_what_ends_differ_by_twice_is_all_of_it() -> None:
    assert (1 + half_of(1.21)) ** 2 == pytest.approx(1.21)


def test_without_a_commit_between_there_is_nothing_to_look_for() -> None:
    with pytest.raises(GpuliftError, match="no commit between"):
        search(COMMITS[:1], Oracle("."), "0 and 0")


def repository(folder: Path, speeds: Sequence[str]) -> None:
    git(folder, "init", "--quiet")
    for speed in speeds:
        (folder / "step.py").write_text(
            f"import random\nprint('step:', {speed} * random.gauss(1, 0.0005))\n# {folder}", "utf-8"
        )
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "--allow-empty", "-m", f"takes {speed}")


@pytest.mark.world
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_commit_of_a_repository_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    repository(folder, ("1.0", "1.1", "broken", "1.1", "1.1", "1.1"))
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(gate_jobs, "MOST_PAIRS", 1)
    asked: list[float] = []
    run_gate = gate_jobs.run

    def noted(gate: gate_jobs.JobAsked, environment: Any) -> Any:
        asked.append(gate.threshold)
        return run_gate(gate, environment)

    monkeypatch.setattr(gate_jobs, "run", noted)
    source = ("--metric", "stdout:step: (.*)")
    run = ("--", "python3", "step.py")
    assert cli.main(["bisect", "--good", "HEAD~5", *source, *run]) == OK
    shown = capfd.readouterr()
    assert "takes 1.1 (a, " in shown.out
    assert "made it slower; its parent" in shown.out
    assert "4 commits are left to look at" in shown.err
    assert len(asked) > 2
    assert asked[0] == gate_jobs.THRESHOLD
    assert asked[1:] == [pytest.approx(0.049, abs=0.005)] * (len(asked) - 1), "of 1.1, half"
    assert "cannot be told: a run of the head ended with code 1" in shown.err
    both = (*source, "--higher", "wall")
    assert cli.main(["bisect", "--good", "HEAD~4", *both, *run]) == USAGE
