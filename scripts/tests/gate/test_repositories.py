"""Commits of somebody's repository as the sides of a gate."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from gpulift.gate import repositories
from gpulift.gate.jobs import JobSide
from gpulift.gate.repositories import Repository
from gpulift.ground.errors import GpuliftError

pytestmark = [
    pytest.mark.world,
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
]


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def made(folder: Path) -> Path:
    """A repository with two commits, in which `part/speed` holds 1 and then 2."""
    (folder / "part").mkdir(parents=True)
    git(folder, "init", "--quiet")
    for speed in "12":
        (folder / "part" / "speed").write_text(speed, "utf-8")
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "-m", speed)
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return made(tmp_path / "pro ject")


def side(
    repository: Repository, commit: str, setup: str = "", said: list[str] | None = None
) -> JobSide:
    environment = {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(repository.root.parent / "c")}
    told = said if said is not None else []
    return repository.side(commit, "the head", setup, environment, 60.0, told.append)


def test_a_side_is_a_commit_in_a_folder_of_its_own(project: Path) -> None:
    repository = Repository.here(project / "part")
    assert repository.inside == "part/"
    base = side(repository, repository.commit("HEAD~1"))
    assert (base.folder / "speed").read_text("utf-8") == "1"
    assert (project / "part" / "speed").read_text("utf-8") == "2"
    assert base.folder.is_relative_to(project.parent / "c" / "gpulift" / "gate")


def test_a_checkout_with_changes_is_judged_as_it_is_and_named(project: Path) -> None:
    repository = Repository.here(project)
    assert repository.as_it_is() == (
        repository.commit("HEAD"),
        f"this checkout ({repository.commit('HEAD')[:7]})",
    )
    (project / "part" / "speed").write_text("3", "utf-8")
    (project / "new").write_text("", "utf-8")
    commit, said = repository.as_it_is()
    assert "with uncommitted changes)" in said
    assert said.endswith(", without 1 new file that git does not know")
    assert (side(repository, commit).folder / "part" / "speed").read_text("utf-8") == "3"
    assert (project / "part" / "speed").read_text("utf-8") == "3"


def test_a_set_up_runs_once_and_anew_where_it_is_another(project: Path) -> None:
    repository = Repository.here(project)
    commit = repository.commit("HEAD")
    said: list[str] = []
    for setup in ("echo x >> log", "echo x >> log", 'cp "$GPULIFT_CHECKOUT/part/speed" taken'):
        head = side(repository, commit, setup, said)
    assert (head.folder / "log").read_text("utf-8") == "x\n"
    assert (head.folder / "taken").read_text("utf-8") == "2"
    assert len(said) == 2


def test_a_set_up_that_fails_is_said_and_tried_again(project: Path) -> None:
    repository = Repository.here(project)
    commit = repository.commit("HEAD")
    for _ in range(2):
        with pytest.raises(GpuliftError, match=r"failed in the head with code 3; .*: no compiler"):
            side(repository, commit, "echo no compiler >&2; exit 3")


def test_a_set_up_that_does_not_end_is_stopped(project: Path) -> None:
    repository = Repository.here(project)
    environment = {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(project.parent / "c")}
    with pytest.raises(GpuliftError, match=r"--setup has not ended in 0\.2 s in base"):
        repository.side(repository.commit("HEAD"), "base", "sleep 60", environment, 0.2, print)


@pytest.mark.parametrize("reference", ["nothing", "--help", ""])
def test_what_is_no_reference_is_refused(project: Path, reference: str) -> None:
    with pytest.raises(GpuliftError, match="is no reference of"):
        Repository.here(project).commit(reference)


def test_a_folder_outside_of_any_repository_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GpuliftError, match="is in no git repository"):
        Repository.here(tmp_path)


def test_submodules_are_said_not_to_be_there(project: Path) -> None:
    (project / ".gitmodules").write_text("", "utf-8")
    git(project, "add", ".")
    git(project, "commit", "--quiet", "-m", "sub")
    said: list[str] = []
    repository = Repository.here(project)
    side(repository, repository.commit("HEAD"), said=said)
    assert said == [
        "submodules are not checked out: --setup 'git submodule update --init' does that"
    ]


def test_worktrees_that_nobody_used_for_long_are_removed(project: Path) -> None:
    repository = Repository.here(project)
    old = side(repository, repository.commit("HEAD~1")).folder
    long_ago = time.time() - repositories.KEPT_S - 1
    os.utime(old.parent / repositories.LOCK, (long_ago, long_ago))
    side(repository, repository.commit("HEAD"))
    assert not old.exists()
    assert str(old) not in git(project, "worktree", "list")


def test_two_repositories_of_one_name_share_nothing(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    caches = {Repository.here(made(tmp_path / above / "same")).cache(environment) for above in "ab"}
    assert len(caches) == 2


def test_the_cache_is_that_of_the_user() -> None:
    assert repositories.cache_folder({"HOME": "/h"}) == Path("/h/.cache/gpulift/gate")
    assert repositories.cache_folder({"HOME": "/h", "XDG_CACHE_HOME": "relative"}).is_absolute()
