"""`gpulift bisect`: which commit is named, and when none is."""

from __future__ import annotations

import operator
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpulift import cli
from gpulift.commands.bisect import half_of, search
from gpulift.gate import commands
from gpulift.gate.ancestry import Ancestry
from gpulift.gate.asked import THRESHOLD, Asked
from gpulift.gate.plan import planned
from gpulift.ground.errors import INCONCLUSIVE, OK, USAGE, GpuliftError
from gpulift.verdicts.row import FAILED, OPEN, PASSED, Row
from tests.fake_runs import in_this_process
from tests.gate.test_repositories import git

pytestmark = [
    pytest.mark.world,
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
]


class Project:
    """Commits with a letter and a verdict each, and what was asked of them."""

    def __init__(self, folder: Path) -> None:
        git(folder, "init", "--quiet")
        self.folder = folder
        self.tree = git(folder, "write-tree")
        self.commits: dict[str, str] = {}
        self.verdicts: dict[str, str] = {}
        self.asked: list[str] = []
        self.worse: Callable[[str, str], bool] = operator.gt

    def grow(self, graph: str) -> None:
        """A commit a word: its letter, what it is, its parents. `.` is fast, `x` slow, `?` cannot
        be told."""
        for letter, verdict, *parents in map(list, graph.split()):
            of = [word for one in parents for word in ("-p", self.commits[one])]
            self.commits[letter] = git(self.folder, "commit-tree", self.tree, *of, "-m", letter)
            self.verdicts[letter] = verdict

    def line(self, verdicts: str) -> None:
        """Commits a, b, c, ... in a row."""
        words = zip("abcdefghi", verdicts, ["", *"abcdefgh"], strict=False)
        self.grow(" ".join(map("".join, words)))

    def judge(self, base: str, head: str) -> Row:
        letters = {commit: letter for letter, commit in self.commits.items()}
        both = letters[base] + letters[head]
        self.asked.append(both)
        base_is, head_is = (self.verdicts[letter] for letter in both)
        if "?" in (base_is, head_is):
            return Row("head/base", head, "error", OPEN, reason="it does not build")
        kind = FAILED if self.worse(head_is, base_is) else PASSED
        return Row("head/base", head, "", kind)

    def search(self, good: str, bad: str) -> str:
        """The letters of the commit that is named and of its parent."""
        ends = (self.commits[good], self.commits[bad])
        found = search(Ancestry(self.folder), self.judge, ends, f"{good} and {bad}")
        letters = {commit: letter for letter, commit in self.commits.items()}
        return "".join(letters[commit] for commit in found)

    def named(self, text: str) -> str:
        """With letters in place of hashes."""
        for letter, commit in self.commits.items():
            text = text.replace(commit[:7], letter)
        return text


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.mark.parametrize("first", range(1, 9))
def test_the_first_slow_commit_is_named(project: Project, first: int) -> None:
    project.line("." * first + "x" * (9 - first))
    culprit, parent = "abcdefghi"[first], "abcdefghi"[first - 1]
    assert project.search("a", "i") == culprit + parent
    assert len(project.asked) <= 5
    assert project.asked[0] == "ai"
    assert first == 1 or project.asked[-1] == parent + culprit


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        (".........", "a and i: the second is no worse"),
        ("........?", "a and i: whether they differ cannot be told: it does not build"),
        (".....?xxx", "it is one of f, g: all but the last cannot be told: it does not build"),
        (
            ".??xx",
            "it is one of [bc], [bc], d: all but the last cannot be told: it does not build$",
        ),
    ],
)
def test_what_cannot_be_told_is_said(project: Project, verdicts: str, said: str) -> None:
    project.line(verdicts)
    with pytest.raises(GpuliftError) as error:
        project.search("a", list(project.commits)[-1])
    assert re.match(said, project.named(str(error.value)))
    assert error.value.exit_code == INCONCLUSIVE


def test_a_commit_that_is_not_told_is_passed_by(project: Project) -> None:
    project.line("....?.xxx")
    assert project.search("a", "i") == "gf"


def test_a_slow_down_in_steps_is_not_blamed_on_one(project: Project) -> None:
    project.line("012345678")
    project.worse = lambda head, base: int(head) - int(base) > 3
    with pytest.raises(GpuliftError, match="it came in several steps, or by chance"):
        project.search("a", "i")


FORKED = "a. b{}a c.b dxb exd f."  # c is a hotfix behind b, main goes on to e


def test_a_good_one_on_another_branch_is_measured_where_they_part(project: Project) -> None:
    project.grow(FORKED.format("."))
    assert project.search("c", "e") == "db"
    assert project.asked == ["ce", "cb", "cd", "bd"]


@pytest.mark.parametrize(
    ("fork", "good", "bad", "said"),
    [
        ("x", "c", "e", "c and e part at b, which against the first is worse: name a --good"),
        ("?", "c", "e", "c and e part at b, which against the first is cannot be told: it does"),
        (".", "e", "b", "there is no commit between e and b: --good names the earlier one"),
        (".", "b", "b", "there is no commit between b and b"),
        (".", "f", "e", "f and e have no commit in common; in a shallow clone"),
    ],
)
def test_ends_between_which_nothing_can_be_looked_for(
    project: Project, fork: str, good: str, bad: str, said: str
) -> None:
    project.grow(FORKED.format(fork))
    with pytest.raises(GpuliftError) as error:
        project.search(good, bad)
    assert project.named(str(error.value)).startswith(said)


@pytest.mark.parametrize(
    ("side", "found"), [("..", "ge"), (".x", "fc"), ("xx", "cb")], ids=["merge", "side", "begin"]
)
def test_a_merge_or_a_commit_of_its_side_is_named(project: Project, side: str, found: str) -> None:
    """b forks into c, f and d, e, which g merges, before h."""
    project.grow("a. b.a c{}b d.b e.d f{}c gxef hxg".format(*side))
    assert project.search("b", "h") == found


def test_a_side_that_does_not_follow_the_good_one_is_its_merge(project: Project) -> None:
    """The side, c, was begun before the good one, b."""
    project.grow("ax b.a cxa dxcb exd")
    assert project.search("b", "e") == "db"


def test_a_list_that_git_does_not_give_is_no_empty_one(tmp_path: Path) -> None:
    with pytest.raises(GpuliftError, match=r"git rev-list in .*: fatal: not a git repository"):
        Ancestry(tmp_path).between(["a"], "b")


def test_half_of_what_ends_differ_by_twice_is_all_of_it() -> None:
    assert (1 + half_of(1.21)) ** 2 == pytest.approx(1.21)
    assert half_of(1 / 1.21) == half_of(1.21), "of a number of which more is better"
    assert half_of(12.0) < 1, "a threshold is a fraction"


def repository(folder: Path, speeds: Sequence[str]) -> None:
    git(folder, "init", "--quiet")
    for speed in speeds:
        step = f"import random\nprint('step:', {speed} * random.gauss(1, 0.0005))\n# {folder}"
        (folder / "step.py").write_text(f"#!/usr/bin/env python3\n{step}", "utf-8")
        (folder / "step.py").chmod(0o644 if speed == "no program" else 0o755)
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "--allow-empty", "-m", f"takes {speed}")


def test_a_commit_of_a_repository_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    repository(folder, ("1.0", "1.1", "broken", "no program", "1.1", "1.1"))
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(commands, "MOST_PAIRS", 1)
    in_this_process(monkeypatch)
    asked: list[float] = []

    def noted(gate: Asked, *more: Any) -> Any:
        asked.append(gate.threshold)
        return planned(gate, *more)

    monkeypatch.setattr("gpulift.commands.bisect.planned", noted)
    source = ("--metric", "stdout:step: (.*)")
    run = ("--", "./step.py")
    assert cli.main(["bisect", "--good", "HEAD~5", *source, *run]) == OK
    shown = capfd.readouterr()
    assert "takes 1.1 (a, " in shown.out
    assert "made it slower; its parent" in shown.out
    assert "4 commits left to look at" in shown.err
    assert len(asked) > 2
    assert asked[0] == THRESHOLD
    assert asked[1:] == [pytest.approx(0.049, abs=0.005)] * (len(asked) - 1), "of 1.1, half"
    assert "cannot be told: a run of the head ended with code 1" in shown.err
    assert "cannot be told: ./step.py: cannot be started: " in shown.err
    both = (*source, "--higher", "wall")
    assert cli.main(["bisect", "--good", "HEAD~4", *both, *run]) == USAGE
