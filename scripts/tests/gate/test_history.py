"""Histories: their files, and where a level changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gpulift.gate import branch, history
from gpulift.gate.history import Point
from gpulift.ground.errors import NOT_COMPARABLE, GpuliftError, RecordError
from tests.gate.test_repositories import git, made
from tests.gate.test_repositories import pytestmark as of_repositories


def of_git(test: Callable[..., None]) -> Callable[..., None]:
    """A test that starts git."""
    for mark in of_repositories:
        test = mark(test)
    return test


def points(values: list[float], **more: object) -> list[Point]:
    """A point a day."""
    return [
        Point("a/b", value, f"2026-01-{day:02d}T00:00:00Z", commit=f"c{day}", **more)  # type: ignore[arg-type]
        for day, value in enumerate(values, start=1)
    ]


def noisy(level: float, count: int, seed: int) -> list[float]:
    return [float(one) for one in level * np.random.default_rng(seed).normal(1, 0.002, count)]


def test_a_change_of_level_is_found_where_it_is() -> None:
    held = points([*noisy(1.0, 12, 1), *noisy(1.05, 8, 2)])
    (change,) = history.changes("a/b", held)
    assert (change.place, change.first.commit) == (12, "c13")
    assert change.before == pytest.approx(1.0, rel=0.005)
    assert change.after == pytest.approx(1.05, rel=0.005)
    assert change.worse
    assert change.p < history.LEAST_P
    assert change.same_card


def test_several_changes_are_found_in_their_order() -> None:
    held = points([*noisy(1.0, 9, 3), *noisy(1.1, 9, 4), *noisy(0.9, 9, 5)])
    found = history.changes("a/b", held)
    assert [change.place for change in found] == [9, 18]
    assert [change.worse for change in found] == [True, False]


def test_more_is_better_where_it_is() -> None:
    (change,) = history.changes("a/b", points([*noisy(1, 9, 1), *noisy(2, 9, 2)], higher=True))
    assert not change.worse


def test_noise_alone_is_no_change() -> None:
    found = [history.changes("a/b", points(noisy(1.0, 28, seed))) for seed in range(200)]
    assert sum(map(len, found)) == 0


@pytest.mark.parametrize(
    "values",
    [
        [1.0] * 20,
        [1.0] * 18 + [2.0, 2.0],  # fewer than three points
        [1.0] * 6 + [2.0] * 3,  # fewer than ten in all
        [1.0] * 10 + [1.004] * 10,  # below half a percent
    ],
)
def test_what_is_too_little_is_no_change(values: list[float]) -> None:
    assert history.changes("a/b", points(values)) == []


def test_a_step_without_any_noise_is_one() -> None:
    (change,) = history.changes("a/b", points([1.0] * 10 + [1.1] * 3))
    assert change.place == 10


def test_points_of_several_cards_are_said() -> None:
    held = [*points([1.0] * 8, card="x"), *points([2.0] * 8, card="y")]
    (change,) = history.changes("a/b", held)
    assert not change.same_card


def test_a_point_is_added_once_and_in_the_order_of_time(tmp_path: Path) -> None:
    first, second, third = points([1.0, 2.0, 3.0], unit="ms")
    history.write(tmp_path, [third, first])
    held = history.joined(history.read(tmp_path), [second, first])
    assert held == [first, second, third]
    history.write(tmp_path, held)
    assert history.read(tmp_path) == held


def test_without_a_file_there_is_no_point(tmp_path: Path) -> None:
    assert history.read(tmp_path) == []


def test_rows_of_several_machines_are_told_apart() -> None:
    rows = history.rows_of([*points([1.0], machine="x"), *points([2.0], machine="y")])
    assert set(rows) == {"a/b on x", "a/b on y"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"row": "a", "value": 0, "at": "x"}', "history.jsonl:1: value"),
        (b'\n{"row": "a", "value": 1e400, "at": "x"}', "history.jsonl:2"),
        (b'{"row": "a", "value": NaN, "at": "x"}', "history.jsonl:1: NaN is not a number"),
        (b"text", "history.jsonl:1"),
        (b"\xff\xfe", "is no text"),
    ],
)
def test_a_broken_history_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / history.FILE).write_bytes(content)
    with pytest.raises(RecordError, match=said):
        history.read(tmp_path)


def test_what_is_in_one_call_twice_is_added_once() -> None:
    (first,) = points([1.0])
    assert history.joined([], [first, first]) == [first]


@pytest.mark.parametrize("other", [{"unit": "us"}, {"higher": True}])
def test_a_row_in_another_unit_is_not_comparable(other: dict[str, object]) -> None:
    held, new = points([1.0], unit="ms"), points([1.0, 2.0], **{"unit": "ms", **other})[1]
    with pytest.raises(GpuliftError, match=r"a/b: not comparable: of 2026-01-01.* ms ") as error:
        history.joined(held, [new])
    assert error.value.exit_code == NOT_COMPARABLE


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return made(tmp_path / "project")


def added(project: Path, name: str, content: str, of: str = "f") -> None:
    branch.tip(project, name).write(of, content, f"Add {content}")


@of_git
def test_a_branch_holds_a_file_that_no_checkout_sees(project: Path) -> None:
    assert branch.tip(project, "data/history").content("f") is None
    for content in ("one", "two"):
        added(project, "data/history", content)
        assert branch.tip(project, "data/history").content("f") == content
    assert git(project, "log", "--format=%s", "data/history").splitlines() == ["Add two", "Add one"]
    assert git(project, "status", "--porcelain") == ""
    assert not (project / "f").exists()
    assert branch.tip(project, "data/history").content("g") is None


@of_git
def test_what_else_a_branch_holds_stays(project: Path) -> None:
    odd = project / "part" / "two\nlines"
    odd.write_text("x", "utf-8")
    (project / "a b\n\udcff").write_text("y", "utf-8")
    git(project, "add", ".")
    git(project, "commit", "--quiet", "-m", "odd")
    git(project, "branch", "site")
    before = git(project, "ls-tree", "-r", "site").splitlines()
    added(project, "site", "one")
    after = git(project, "ls-tree", "-r", "site").splitlines()
    assert [line for line in after if not line.endswith("\tf")] == before
    assert len(after) == len(before) + 1


@of_git
@pytest.mark.parametrize("at", ["project", "another"])
def test_a_branch_that_is_checked_out_is_refused(project: Path, at: str) -> None:
    git(project, "worktree", "add", "--quiet", "-b", "another", "../another")
    name = git(project.parent / at, "branch", "--show-current")
    before = git(project, "rev-parse", name)
    with pytest.raises(GpuliftError, match=f"{name}: is checked out in /.*/{at}: name one that"):
        added(project, name, "x")
    assert git(project, "rev-parse", name) == before


@of_git
@pytest.mark.parametrize(("name", "said"), [("part", "is no file there"), ("raw", "is no text")])
def test_a_history_that_is_no_text_is_refused(project: Path, name: str, said: str) -> None:
    (project / "raw").write_bytes(b"\xff")
    git(project, "add", ".")
    git(project, "commit", "--quiet", "-m", "raw")
    with pytest.raises(GpuliftError, match=said):
        branch.tip(project, git(project, "branch", "--show-current")).content(name)


@of_git
def test_a_branch_that_only_origin_has_is_gone_on_with(project: Path) -> None:
    added(project, "data", "one")
    clone = project.parent / "clone"
    git(project, "clone", "--quiet", ".", str(clone))
    assert branch.tip(clone, "data").content("f") == "one"
    added(clone, "data", "two")
    git(clone, "push", "--quiet", "origin", "data")
    assert branch.tip(project, "data").content("f") == "two"
    git(clone, "remote", "set-url", "origin", "/nowhere")
    assert branch.tip(clone, "data").content("f") == "two", "it is here by now"
    with pytest.raises(GpuliftError, match="origin does not say whether it is there: fatal: '/now"):
        branch.tip(clone, "other")


@of_git
def test_what_came_in_between_is_not_overwritten(project: Path) -> None:
    first, second = branch.tip(project, "data"), branch.tip(project, "data")
    first.write("f", "one", "m")
    with pytest.raises(GpuliftError, match="git update-ref in"):
        second.write("f", "two", "m")
    assert branch.tip(project, "data").content("f") == "one"


@of_git
@pytest.mark.parametrize("name", ["", "-x", "a..b", "a:b", "a b", "HEAD", "@{-1}", "refs/heads/a"])
def test_what_is_no_branch_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(GpuliftError, match="is no name of a branch"):
        branch.tip(tmp_path, name)


@pytest.mark.world
def test_a_folder_without_a_repository_is_said(tmp_path: Path) -> None:
    with pytest.raises(GpuliftError, match=r"git rev-parse in .*: fatal: not a git repository"):
        branch.lock_of(tmp_path)
