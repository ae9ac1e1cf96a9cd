"""Histories: their files, and where a level changed."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from gpulift.gate import branch, history
from gpulift.gate.history import Point
from gpulift.ground.errors import GpuliftError, RecordError
from tests.gate.test_repositories import git, made


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
        (b"text", "history.jsonl:1"),
        (b"\xff\xfe", "is no text"),
    ],
)
def test_a_broken_history_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / history.FILE).write_bytes(content)
    with pytest.raises(RecordError, match=said):
        history.read(tmp_path)


@pytest.mark.world
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_branch_holds_a_file_that_no_checkout_sees(tmp_path: Path) -> None:
    project = made(tmp_path / "project")
    assert branch.read(project, "data/history", "f") is None
    for content in ("one\n", "two\n"):
        branch.write(project, "data/history", "f", content, f"Add {content.strip()}")
        assert branch.read(project, "data/history", "f") == content
    assert git(project, "log", "--format=%s", "data/history").splitlines() == ["Add two", "Add one"]
    assert git(project, "status", "--porcelain") == ""
    assert not (project / "f").exists()
    assert branch.read(project, "data/history", "g") is None


@pytest.mark.parametrize("name", ["", "-x", "a..b", "a:b"])
def test_what_is_no_branch_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(GpuliftError, match="is no name of a branch"):
        branch.read(tmp_path, name, "f")


@pytest.mark.world
def test_a_folder_without_a_repository_is_said(tmp_path: Path) -> None:
    with pytest.raises(GpuliftError, match="git hash-object in"):
        branch.write(tmp_path, "b", "f", "x", "m")
